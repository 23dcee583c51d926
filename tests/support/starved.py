"""A process that runs out of something: `python -m support.starved RESOURCE CALL`.

While there is none, it makes the call and goes on with what was under way; when there is some again, the call
once more. It prints as JSON what the call said, and what was there before and after.
"""

import ctypes
import gc
import json
import mmap
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import zerohop as zh

from support.link import until

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Stage:
    """Two Endpoints of this process with memory and a message under way, and a third that knows nobody yet."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.a, self.b, self.c = (zh.Endpoint(device, timeout=10) for _ in range(3))
        self.peer = self.a.connect(self.b.address)
        self.back = self.b.accept()
        self.mine, self.far, self.unknown = (
            self.a.empty(4096),
            self.b.empty(4096),
            self.b.empty(4096),
        )
        self.long_mine, self.long_far = self.a.empty(4 << 20), self.b.empty(4 << 20)
        self.verbs = zh.verbs.Device(device)
        self.go_on(1)  # whatever is made or mapped at a first use is there now
        self.inbox = np.zeros(64, np.uint8)
        self.peer.write(self.long_mine[:1], self.long_far.remote[:1]).wait()
        self.pending = self.peer.recv(self.inbox, tag=5)

    def go_on(self, value: int) -> None:
        """A write and its notification: what needs nothing new."""
        np.asarray(self.mine)[:] = value
        self.peer.write(self.mine, self.far.remote, notify=(3, value)).wait()
        assert self.b.wait_notify(3) == value
        assert (np.asarray(self.far) == value).all()

    def end(self) -> None:
        """What was begun before the shortage ends well."""
        self.back.send(np.full(64, 9, np.uint8), tag=5).wait()
        self.pending.wait()
        assert (self.inbox == 9).all()

    def close(self) -> None:
        for ep in (self.a, self.b, self.c):
            ep.close()


CALLS: dict[str, Callable[[Stage], Any]] = {
    "Endpoint": lambda s: zh.Endpoint(s.device, timeout=10),
    "connect": lambda s: s.c.connect(s.b.address),
    "register": lambda s: s.a.register(np.zeros(1000)),
    "empty": lambda s: s.a.empty(1 << 20),
    "CompletionQueue": lambda s: zh.verbs.CompletionQueue(s.verbs),
    "p2p": lambda s: s.peer.write(s.mine, s.unknown.remote, require="p2p").wait(),
    "long p2p": lambda s: s.peer.write(s.long_mine, s.long_far.remote, require="p2p").wait(),
}


@contextmanager
def no_descriptors(_: Stage) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)  # the lowest number that is free: all below are taken
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextmanager
def no_mappings(_: Stage) -> Iterator[None]:
    """As many as vm.max_map_count allows: pages of one range, every other one readable."""
    most = int(Path("/proc/sys/vm/max_map_count").read_text())
    nbytes = 2 * most * mmap.PAGESIZE
    anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    begin = libc.mmap(None, nbytes, 0, anonymous, -1, 0)
    assert begin not in (None, ctypes.c_void_p(-1).value)
    taken = 0
    while libc.mprotect(begin + 2 * taken * mmap.PAGESIZE, mmap.PAGESIZE, mmap.PROT_READ) == 0:
        taken += 1
        assert taken < most, "the limit was not felt"
    last = []  # the kernel refuses to split one a little before it refuses a new one
    with suppress(OSError):
        while len(last) < 16:
            last.append(mmap.mmap(-1, mmap.PAGESIZE))
    assert len(last) < 16, "the limit was not felt"
    try:
        yield
    finally:
        for page in last:
            page.close()
        libc.munmap(begin, nbytes)


@contextmanager
def no_addresses(_: Stage) -> Iterator[None]:
    """All but 256 KiB of the address space that RLIMIT_AS allows is in use."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 10), resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def device_limit(name: str) -> Callable[[Stage], Any]:
    """The software HCA of `a`, `b` and `c` gives no more of it than are there."""

    @contextmanager
    def limited(stage: Stage) -> Iterator[None]:
        for ep in (stage.a, stage.b, stage.c):
            ep.set_faults(f"{name}=1")
        try:
            yield
        finally:
            for ep in (stage.a, stage.b, stage.c):
                ep.set_faults(None)

    return limited


SHORTAGES: dict[str, Callable[[Stage], Any]] = {
    "descriptors": no_descriptors,
    "mappings": no_mappings,
    "addresses": no_addresses,
    "max_qp": device_limit("max_qp"),
    "max_mr": device_limit("max_mr"),
}


def counts() -> dict[str, int]:
    gc.collect()
    maps = Path("/proc/self/maps").read_text()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "shared mappings": maps.count("memfd:zerohop"),
    }


def given_back(before: dict[str, int]) -> bool:
    """Before may count a thread that has been joined: the kernel lists it for a moment more."""
    now = counts()
    return all(now[name] <= before[name] for name in now)


def words_of(call: Callable[[Stage], Any], stage: Stage) -> str:
    """What the refusal said; "works" if there was none."""
    try:
        made = call(stage)
    except (zh.Error, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    if hasattr(made, "close"):
        made.close()
    return "works"


def main(shortage: str, name: str) -> None:
    call = CALLS[name]
    Stage("soft0").close()  # what is opened once for the process is open now
    before = counts()
    stage = Stage("soft0")
    with SHORTAGES[shortage](stage):
        said = words_of(call, stage)
        stage.go_on(2)
    stage.end()
    stage.go_on(3)
    then = words_of(call, stage)
    stage.close()
    del stage
    until(lambda: given_back(before), f"all is given back: {before}, {counts()}")
    print(json.dumps({"said": said, "then": then}))


if __name__ == "__main__":
    main(*sys.argv[1:])
