"""Ray actors that hold a World: they find each other through a store that is also an actor, and exchange arrays without Ray.

Anything with set() and get() is a store of a World, and so is an actor. The members write to each other from
array to array, one-sided, not through Ray's object store. Members on several hosts need an RDMA adapter, or
ZEROHOP_DEVICE=soft0@eth0.
"""

import argparse
import logging
import sys
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

import zerohop as zh

SLOT = 0  # of the notification
PATIENCE = 120.0  # seconds for each call of an actor


class Board:
    """An actor through which the members find each other's addresses. These are secrets within the job."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:
        self._known[key] = value

    def get(self, key: str) -> bytes | None:
        return self._known.get(key)


class RayStore:
    """The board as a World's store."""

    def __init__(self, board: Any) -> None:
        self._ray, self._board = import_module("ray"), board

    def set(self, key: str, value: bytes) -> None:
        self._ray.get(self._board.set.remote(key, bytes(value)), timeout=PATIENCE)

    def get(self, key: str) -> bytes | None:
        value: bytes | None = self._ray.get(self._board.get.remote(key), timeout=PATIENCE)
        return value


class Member:
    """An actor: a rank of a World, with an array that its left neighbour writes."""

    def __init__(self, board: Any, rank: int, size: int, count: int) -> None:
        self._world = zh.World(RayStore(board), rank, size)
        self._count = count
        self._inbox = self._world.endpoint.empty(count, "int64")
        self._world.endpoint.share("inbox", self._inbox)

    def exchange(self, round_: int) -> tuple[int, str]:
        """The number of wrong values, and the route. All members are called at once."""
        world = self._world
        left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size
        peer = world.peer(right)
        source = content(world.rank, round_, self._count)
        written = peer.write(source, peer.lookup("inbox"), notify=(SLOT, round_ + 1))
        world.endpoint.wait_notify(SLOT)  # the data arrives before it
        wrong = np.count_nonzero(np.asarray(self._inbox) != content(left, round_, self._count))
        written.wait()
        return int(wrong), str(written.route)

    def close(self) -> None:
        self._world.close()


def content(rank: int, round_: int, count: int) -> npt.NDArray[np.int64]:
    """The array that a rank writes in a round."""
    return np.arange(count, dtype=np.int64) * (round_ + 1) + 1_000_003 * rank


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {"actors": 3, "count": 1 << 20, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--address", help="of a cluster, such as auto; default: start one here")
    options = parser.parse_args()
    ray = import_module("ray")
    own = {"address": options.address} if options.address else {"include_dashboard": False}
    ray.init(log_to_driver=False, logging_level=logging.ERROR, **own)
    try:
        remote = ray.remote(num_cpus=0)  # they mostly wait
        board, size = remote(Board).remote(), options.actors
        members = [remote(Member).remote(board, rank, size, options.count) for rank in range(size)]
        found = []
        for round_ in range(options.rounds):
            found += ray.get([each.exchange.remote(round_) for each in members], timeout=PATIENCE)
        ray.get([each.close.remote() for each in members], timeout=PATIENCE)
    finally:
        ray.shutdown()
    print(
        f"{options.rounds} rounds of {options.count} numbers between {size} actors, {found[0][1]}"
    )
    if wrong := sum(each for each, _ in found):
        sys.exit(f"WRONG: {wrong} numbers")
    print("Every number is right.")


if __name__ == "__main__":
    main()
