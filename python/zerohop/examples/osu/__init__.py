"""Latency and bandwidth between two ranks, in the form of the OSU micro-benchmarks for MPI, by writes and notifications.

latency: a write with a notification, answered by one; half of the time there and back. bandwidth: windows of 64 writes, of
which the last has a notification, each answered by a notification. The tables have OSU's columns and units, so that what
reads those reads these. As there, nobody reads what arrives while it is timed, so on a CPU what fits into the cache of a core
stays there.

plan.py has sizes and how often, pair.py the arrays of both ranks and their check, loops.py what is timed, rank.py what each
rank does, report.py the table.
"""
