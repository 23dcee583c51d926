"""Ranks of a World in processes that do what they are asked, one call at a time, and may be killed or stopped."""

import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import zerohop as zh

from support.ranks import TIMEOUT, Job
from support.spawned import Worker, obey


def member(job: Job, rank: int, size: int) -> Worker:
    """The rank of one World, which is replaced when it is shrunk."""
    return Worker("support.members", job.directory, job.device, rank, size)


def ask(members: list[Worker], call: str, *arguments: Any) -> list[Any]:
    """All do it at once; their answers."""
    for each in members:
        each.tell(call, *arguments)
    return [each.answer() for each in members]


class Rank:
    """What such a process has. The methods are the calls."""

    def __init__(self, directory: str, device: str, rank: str, size: str) -> None:
        place = (Path(directory), int(rank), int(size))
        self.world = zh.World(*place, device=device, timeout=TIMEOUT)
        self.splits: dict[str, zh.World] = {}

    def shrink(self, *arguments: Any) -> tuple[int, int, str]:
        before, self.world = self.world, self.world.shrink(*arguments)
        before.close()
        return self.world.rank, self.world.size, self.world.name

    def split(self, name: str, ranks: list[int]) -> None:
        self.splits[name] = self.world.split(ranks, name=name)

    def reach_in(self, name: str, rank: int) -> None:
        self.splits[name].peer(rank)

    def meet_in(self, name: str) -> str:
        """In that split."""
        self.splits[name].barrier()
        return "met"

    def gather_in(self, name: str) -> list[int]:
        """The ranks there."""
        split = self.splits[name]
        out = np.zeros(split.size, np.int64)
        split.all_gather(out, np.full(1, split.rank))
        return out.tolist()

    def shrink_in(self, name: str) -> tuple[int, int]:
        self.splits[name] = self.splits[name].shrink()
        return self.splits[name].rank, self.splits[name].size

    def meet(self) -> str:
        self.world.barrier()
        return "met"

    def exchange(self) -> list[int]:
        """A collective, and a segment: what all have given, then what the left one has written here."""
        world = self.world
        out = np.zeros(world.size, np.int64)
        world.all_gather(out, np.full(1, 10 * world.rank))
        with world.segment(8, dtype="int64") as segment:
            own = np.full(1, world.rank, np.int64)
            segment.write_notify((world.rank + 1) % world.size, own, 0, slot=0)
            segment.notify_waitsome(0, 1)
            segment.wait()
            left = int(segment.local[0])
            world.barrier()
        return [*out.tolist(), left]

    def state(self) -> list[str]:
        return self.world.state()

    def come_once(self) -> None:
        """Makes a segment "data" of 1 MiB, comes to one barrier, and then does nothing but live."""
        self.segment = self.world.segment(1 << 20, name="data")
        self.world.barrier(60)


def main(descriptor: str, *place: str) -> None:
    rank = Rank(*place)
    obey(Connection(int(descriptor)), lambda name, *given: getattr(rank, name)(*given))


if __name__ == "__main__":
    main(*sys.argv[1:])
