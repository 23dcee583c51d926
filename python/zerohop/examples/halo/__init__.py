"""A 2-D array that the ranks have split by columns, and whose halo columns they write into each other's arrays.

A column of an array in rows is strided: one write takes it from there, and lays it down in a column of the neighbour's. The
arrays are CuPy's on GPUs, where all is in the order of a stream, and NumPy's in the host's memory.

plan.py has which rank has which columns, exchange.py the halos, rank.py what each rank does, report.py the table.
"""
