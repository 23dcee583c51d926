"""Every operation, so long that it can be caught in the middle, for peers that die or stand still."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from support.arrays import array
from support.session import Remote, Session

BIG = 24 << 20  # bytes; more than the sockets between two processes can hold


class Stage:
    """What the operations below need, prepared while the partner is well."""

    def __init__(self, session: Session) -> None:
        keeper = session.keeper
        self.ep, self.peer = session.ep, session.peer
        self.far = keeper.array("empty", np.zeros(BIG, np.uint8)).remote
        self.counter = keeper.array("counter", np.zeros(2, np.int64)).remote
        self.big, _ = array(session.ep, "numpy", np.zeros(BIG, np.uint8))
        self.sink, _ = array(session.ep, "numpy", np.zeros(BIG, np.uint8))
        # Where the bytes go by p2p, the peer is asked for its memory now, while it can answer.
        session.peer.write(self.big[:1], self.far[:1], notify=(9, 1)).wait()
        self.pages = [slice(i * 4096, (i + 1) * 4096) for i in range(BIG // 4096)]


# Each returns when the operation has ended; none can end while the peer stands still.
OPERATIONS: dict[str, Callable[[Stage], Any]] = {
    "write": lambda at: at.peer.write(at.big, at.far).wait(),
    "write and notify": lambda at: at.peer.write(at.big, at.far, notify=(1, 1)).wait(),
    "read": lambda at: at.peer.read(at.far, at.sink).wait(),
    "write_many": lambda at: at.peer.write_many(
        [(at.big[page], at.far[page]) for page in at.pages]
    ).wait(),
    "read_many": lambda at: at.peer.read_many(
        [(at.far[page], at.sink[page]) for page in at.pages]
    ).wait(),
    "fetch_add": lambda at: at.peer.fetch_add(at.counter[0], 1).wait(),
    "compare_swap": lambda at: at.peer.compare_swap(at.counter[1], 0, 1).wait(),
    "send": lambda at: at.peer.send(at.big, tag=1).wait(),
    "recv": lambda at: at.peer.recv(at.sink, tag=1).wait(),
    "notify": lambda at: at.peer.notify(1, 1).wait(),
    "lookup": lambda at: at.peer.lookup("nothing"),
    "wait_notify": lambda at: at.ep.wait_notify(5),
    "wait_notify_any": lambda at: at.ep.wait_notify_any(5, 3),
    "await": lambda at: asyncio.run(awaited(at)),
}
LATER = [name for name in OPERATIONS if name not in ("wait_notify", "wait_notify_any")]


async def awaited(at: Stage) -> None:
    await at.peer.recv(at.sink, tag=2)


# An adapter serves these by itself, while the process they concern stands still. (soft0 does not:
# its responder is a thread of that process.)
SERVED_BY_ADAPTERS = {
    "write", "write and notify", "read", "write_many", "read_many",
    "fetch_add", "compare_swap", "notify",
}  # fmt: skip


# By p2p this process copies alone. (Atomics are the device's always.)
COPIED_BY_P2P = {"write", "write and notify", "read", "write_many", "read_many", "notify"}


def served_by_itself(process: Remote, name: str) -> bool:
    if process.p2p:
        return name in COPIED_BY_P2P
    return name in SERVED_BY_ADAPTERS and not process.device.startswith(("soft0", "mlx5sim"))


# Each waits for what does not come: at most so many seconds, or (None) as long as the Endpoint says.
WAITS: dict[str, Callable[[Any, float | None], Any]] = {
    "recv": lambda s, t: s.peer.recv(s.ep.empty(8), tag=9).wait(t),
    "wait_notify": lambda s, t: s.ep.wait_notify(3, timeout=t),
    "wait_notify_any": lambda s, t: s.ep.wait_notify_any(3, 5, timeout=t),
    "lookup": lambda s, t: s.peer.lookup("nothing", timeout=t),
    "accept": lambda s, t: s.ep.accept(timeout=t),
}
# What an Endpoint and its Peer are used for, with local and remote memory of one int64 at least.
USES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "connect": lambda s, m, r: s.ep.connect(s.address),
    "accept": lambda s, m, r: s.ep.accept(timeout=1),
    "register": lambda s, m, r: s.ep.register(np.zeros(4)),
    "empty": lambda s, m, r: s.ep.empty(4),
    "share": lambda s, m, r: s.ep.share("a", m),
    "wait_notify": lambda s, m, r: s.ep.wait_notify(0, timeout=1),
    "wait_notify_any": lambda s, m, r: s.ep.wait_notify_any(0, 2, timeout=1),
    "write": lambda s, m, r: s.peer.write(m, r),
    "read": lambda s, m, r: s.peer.read(r, m),
    "fetch_add": lambda s, m, r: s.peer.fetch_add(r[0], 1),
    "send": lambda s, m, r: s.peer.send(m),
    "recv": lambda s, m, r: s.peer.recv(m),
    "notify": lambda s, m, r: s.peer.notify(1, 1),
    "lookup": lambda s, m, r: s.peer.lookup("a", timeout=1),
}
