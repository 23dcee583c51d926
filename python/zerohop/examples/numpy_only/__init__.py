"""The smallest example: NumPy, no other framework, one array of every rank, written by its neighbour to the left.

program.py is all of it.
"""
