"""The calls of ``<zerohop/device.cuh>`` for kernels that Numba compiles: ``from zerohop import numba as zn``.

Call them inside ``@cuda.jit`` kernels, with ``queue.address`` and ``board.address`` as arguments of the kernel:

>>> @cuda.jit
... def exchange(queue, board, nbytes):
...     zn.put_notify(queue, 0, 0, nbytes, 7, 1, zn.BLOCK)  # all threads of the block, together
...     status, value = zn.wait_notify(board, 7, 10**9, zn.BLOCK)
>>> exchange[1, 256](queue.address, board.address, mine.nbytes)

Each call is made by a THREAD, a WARP or a BLOCK, all of whose threads make it with the same arguments. The team is a constant, so
the kernel contains only its code. The header documents what each call does, its ordering and its results. It
returns a Status; values that the header returns through pointers follow it in a tuple. Offsets and sizes are bytes, times
nanoseconds.
"""

from zerohop.numba.calls import (
    BLOCK,
    PATIENCE,
    THREAD,
    WARP,
    Reset,
    Status,
    compare_swap,
    fetch_add,
    flush,
    get,
    get_ticket,
    notify,
    notify_ticket,
    peek_notify,
    put,
    put_notify,
    put_notify_checked,
    put_notify_ticket,
    put_ticket,
    put_value,
    put_value_ticket,
    reset_notify,
    wait,
    wait_notify,
    wait_notify_any,
    wait_notify_checked,
)

__all__ = [
    "BLOCK",
    "PATIENCE",
    "THREAD",
    "WARP",
    "Reset",
    "Status",
    "compare_swap",
    "fetch_add",
    "flush",
    "get",
    "get_ticket",
    "notify",
    "notify_ticket",
    "peek_notify",
    "put",
    "put_notify",
    "put_notify_checked",
    "put_notify_ticket",
    "put_ticket",
    "put_value",
    "put_value_ticket",
    "reset_notify",
    "wait",
    "wait_notify",
    "wait_notify_any",
    "wait_notify_checked",
]
