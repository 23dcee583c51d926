"""What a transfer ends with when something happens to the adapter under it: `port`, `removed` or `queue`.

Prints what each of the transfers behind it ended with, and what the Endpoint recorded.
"""

import ctypes
import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import zerohop as zh

TREE = Path(os.environ["MLX5SIM_TREE"])
PORT = TREE / "sys/class/infiniband/mlx5sim0/ports/1"


def set_port(state: str, phys_state: str) -> None:
    (PORT / "phys_state").write_text(phys_state + "\n")
    (PORT / "state").write_text(state + "\n")  # this one is watched


def make_trouble(kind: str) -> None:
    if kind == "port":
        set_port("1: DOWN", "3: Disabled")
    elif kind == "queue":
        assert ctypes.CDLL(None).mlx5sim_break_queue_pairs() > 0
    else:
        shutil.move(TREE / "sys/class/infiniband_verbs/uverbs0", TREE / "removed")
        (TREE / "dev/infiniband/uverbs0").unlink()


def main(kind: str) -> None:
    a, b = zh.Endpoint("mlx5sim0", p2p=0), zh.Endpoint("mlx5sim1", p2p=0)
    peer = a.connect(b.address)
    b.accept()
    ours, theirs = a.register(np.arange(1 << 16)), b.register(np.zeros(1 << 16, "int64"))
    peer.write(ours, theirs.remote).wait()
    begin = time.monotonic()
    make_trouble(kind)
    for _ in range(1000):
        try:
            peer.write(ours, theirs.remote).wait()
            time.sleep(0.01)
        except zh.Error as error:
            print(f"{type(error).__name__} after {time.monotonic() - begin:.1f} s: {error}")
            break
    for name, end in (("a", a), ("b", b)):
        for event in end.stats().get("events", []):
            print(name, event)
    b.close()
    a.close()
    if kind == "port":
        set_port("4: ACTIVE", "5: LinkUp")
    if kind != "removed":
        with zh.Endpoint("mlx5sim0", p2p=0) as c, zh.Endpoint("mlx5sim1", p2p=0) as d:
            target = d.register(np.zeros(4, "int64"))
            c.connect(d.address).write(c.register(np.arange(4)), target.remote).wait()
        print("again")


if __name__ == "__main__":
    main(sys.argv[1])
