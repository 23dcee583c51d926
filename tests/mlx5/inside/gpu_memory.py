"""Arrays of a fake GPU, which fault where a processor touches them, on simulated adapters: registered, written, read.

Prints how they were registered, and by which route.
"""

import ctypes
import sys
from typing import Any

import numpy as np
import zerohop as zh

NBYTES, BEGIN, END = 1 << 16, 4093, 50_001
driver = ctypes.CDLL("libcuda.so.1")


def read(memory: zh.Memory) -> Any:
    found = np.empty(memory.nbytes, np.uint8)
    where = ctypes.c_void_p(found.ctypes.data), ctypes.c_uint64(memory.address)
    assert driver.cuMemcpyDtoH_v2(*where, ctypes.c_size_t(found.size)) == 0
    return found


def write(memory: zh.Memory, content: Any) -> None:
    where = ctypes.c_uint64(memory.address), ctypes.c_void_p(content.ctypes.data)
    assert driver.cuMemcpyHtoD_v2(*where, ctypes.c_size_t(content.size)) == 0


def main() -> None:
    random = np.random.default_rng(7)
    with (
        zh.Endpoint("mlx5sim0", p2p=0, timeout=10.0) as a,
        zh.Endpoint("mlx5sim1", p2p=0, timeout=10.0) as b,
    ):
        peer = a.connect(b.address)
        ours, theirs = (ep.empty(NBYTES, "uint8", device="cuda:0") for ep in (a, b))
        print(ours.registration, theirs.registration)
        content = random.integers(0, 256, NBYTES, np.uint8)
        write(ours, content)
        write(theirs, np.zeros(NBYTES, np.uint8))
        there = theirs[BEGIN:END].remote
        print(peer.route(ours[BEGIN:END], there))
        peer.write(ours[BEGIN:END], there, notify=(3, 1), require="gpudirect").wait()
        assert b.wait_notify(3, timeout=10.0) == 1
        wanted = np.zeros(NBYTES, np.uint8)
        wanted[BEGIN:END] = content[BEGIN:END]
        np.testing.assert_array_equal(read(theirs), wanted)
        write(ours, np.zeros(NBYTES, np.uint8))
        peer.read(there, ours[BEGIN:END], require="gpudirect").wait()
        np.testing.assert_array_equal(read(ours), wanted)
        try:
            a.empty(NBYTES, "uint8", device="cuda:0", registration="dmabuf")
        except zh.RegistrationError as refusal:
            print(refusal)
    print("all")


if __name__ == "__main__":
    sys.exit(main())
