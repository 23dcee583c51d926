"""The raw objects of RDMA verbs, for exploration: what zerohop itself is built on.

The same objects run on an RDMA adapter, on Soft-RoCE and on the built-in software HCA (soft0), which
needs no hardware. Two queue pairs of one process already show everything:

    >>> import numpy as np
    >>> from zerohop import verbs
    >>> device = verbs.Device("soft0")
    >>> pd = device.pd()
    >>> cq = verbs.CompletionQueue(device)
    >>> a, b = verbs.QueuePair(pd, cq), verbs.QueuePair(pd, cq)
    >>> a.connect(b.address()); b.connect(a.address())
    >>> source = pd.register(np.arange(8)); target = pd.register(np.zeros(8, int))
    >>> a.post_send("write", source[0:32], remote=target[32:64].remote, wr_id=7)
    >>> cq.arm(); cq.poll() or (cq.wait(timeout=1.0) and cq.poll())
    [<WC wr_id=7 qp_num=0x1a2b3c RDMA_WRITE>]

Between processes, send `a.address().to_bytes()` and `target.remote` over any channel you have.

Each object keeps its parents alive. Errors are VerbsError with the errno as .code,
and RegistrationError; a request that fails later reports it in its work completion (WC.status, WC.help).
Sizes and offsets are bytes, times are seconds. The names follow libibverbs: man ibv_post_send, ...
"""

import enum

from zerohop._core import (
    WC,
    AsyncEvent,
    CompletionQueue,
    Device,
    MemoryRegion,
    MemorySlice,
    ProtectionDomain,
    QueuePair,
    QueuePairAddress,
    SendRequest,
    SharedReceiveQueue,
    verbs_devices,
)

__all__ = [
    "WC",
    "Access",
    "AsyncEvent",
    "CompletionQueue",
    "Device",
    "MemoryRegion",
    "MemorySlice",
    "ProtectionDomain",
    "QueuePair",
    "QueuePairAddress",
    "SendRequest",
    "SharedReceiveQueue",
    "devices",
]


class Access(enum.IntFlag):
    """Access rights to registered memory (man ibv_reg_mr) or through a queue pair.

    Reading it locally is always allowed. REMOTE_WRITE and REMOTE_ATOMIC on memory need LOCAL_WRITE.
    """

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8
    RELAXED_ORDERING = 1 << 20  # a hint: writes may become visible out of order


def devices() -> list[str]:
    """Names of the RDMA devices that libibverbs lists, then those of the software HCA (soft0, ...)."""
    return verbs_devices()
