"""The parts of a World: its store, its members, its barrier, and the handling of lost ranks."""
