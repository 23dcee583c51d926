"""Actors of Ray that hold a World: they find each other by a store that is an actor, too, and exchange arrays without Ray.

Whatever has set() and get() is a store for a World, and an actor is. What they then write to each other goes from array to
array, one-sided, and not through Ray's object store.

actors.py has the actors, program.py what the driver does with them.
"""
