"""A JAX array of one process becomes one of another's, read by JAX where it was written.

JAX arrays do not change. So the receiver makes the memory, has it written, and makes the array only behind the notification,
from that memory (``jax.dlpack.from_dlpack``); it is written no more while the array lives. The sender's array goes out as it
is: it may be read by peers, and written by nobody.

rank.py has what each rank does, report.py the table.
"""
