"""The life of two Endpoints on simulated adapters, again and again: each time another command is refused.

Prints a line each time: what was refused, and how the life ended.
"""

import ctypes
import errno
import gc
import sys
import warnings

import numpy as np
import zerohop as zh

interposer = ctypes.CDLL(None)
SECONDS = 10.0


def live() -> None:
    source, target = np.arange(4096, dtype="int32"), np.zeros(4096, "int32")
    with (
        zh.Endpoint("mlx5sim0", p2p=0, timeout=SECONDS) as a,
        zh.Endpoint("mlx5sim1", p2p=0, timeout=SECONDS) as b,
    ):
        peer = a.connect(b.address)
        b.accept()
        ours, theirs = a.register(source), b.register(target)
        peer.write(ours, theirs.remote, notify=(3, 1)).wait()
        assert b.wait_notify(3) == 1
        np.testing.assert_array_equal(source, target)
        counter = b.register(np.zeros(1, "uint64"))
        assert peer.fetch_add(counter.remote[0], 5).wait() == 0
        back = a.register(np.zeros(4096, "int32"))
        peer.read(theirs.remote, back).wait()


def main() -> None:
    warnings.simplefilter("ignore")
    live()
    for nth in range(1, 1000):
        interposer.mlx5sim_refuse(nth, errno.ENOMEM)
        try:
            live()
            ended = "well"
        except zh.Error as error:
            ended = f"{type(error).__name__}: {error}"
        refused = interposer.mlx5sim_refused()
        interposer.mlx5sim_refuse(0, 0)
        gc.collect()
        if refused == 0:
            break
        print(f"{nth} {refused >> 16:#x}.{refused & 0xFFFF:#x} {ended}", flush=True)
    live()  # nothing of all that is left behind
    print("all", flush=True)


if __name__ == "__main__":
    sys.exit(main())
