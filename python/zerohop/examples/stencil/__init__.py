"""The 2-D heat equation on a grid split by rows, with halos that travel by one-sided writes and notifications.

Either the CPU launches each step and has each halo written (``host``), or one kernel does all steps and exchanges the halos
from inside (``kernel``). zerohop.demo.heat has the numbers and the reference.

plan.py has what lies where, host.py and kernel.py the two ways behind one face, rank.py what each rank does, stencil.cu the
kernels.
"""
