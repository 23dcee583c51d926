"""What a transfer ends with when something happens to the adapter under it: `port`, `removed` or `queue`.

Prints what the first transfer ended with that did not end well.
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
        ctypes.CDLL(None).mlx5sim_break_queue_pairs()
    else:
        shutil.move(TREE / "sys/class/infiniband_verbs/uverbs0", TREE / "removed")
        (TREE / "dev/infiniband/uverbs0").unlink()


def main(kind: str) -> None:
    a, b = zh.Endpoint("mlx5sim0", p2p=0), zh.Endpoint("mlx5sim1", p2p=0)
    peer = a.connect(b.address)
    b.accept()
    count = 1 << 22  # that many take longer than to make trouble
    ours, theirs = a.register(np.arange(count)), b.register(np.zeros(count, "int64"))
    peer.write(ours, theirs.remote).wait()
    begin = time.monotonic()
    # A queue pair that breaks while nothing is under way is repaired without a word.
    for _ in range(50 if kind == "queue" else 1):
        try:
            under_way = peer.write(ours, theirs.remote)
            make_trouble(kind)
            under_way.wait()
        except zh.Error as error:
            report(error, begin)
            return end(kind, a, b)
    while time.monotonic() < begin + 20:
        try:
            peer.write(ours[:1000], theirs.remote[:1000]).wait()
        except zh.Error as error:
            report(error, begin)
            break
    end(kind, a, b)


def report(error: zh.Error, begin: float) -> None:
    print(f"{type(error).__name__} after {time.monotonic() - begin:.1f} s: {error}")


def end(kind: str, a: zh.Endpoint, b: zh.Endpoint) -> None:
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
