"""Ranks of a World in processes that do what they are told, one call at a time, and may be killed or stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import zerohop as zh

from support.link import START_TIMEOUT, Link, until
from support.ranks import TIMEOUT, Job
from support.spawned import environment_of, is_stopped

_MEMBER = "import sys; from support.members import serve; serve(*sys.argv[1:])"


class Member:
    """The rank of one World, which is replaced when it is shrunk."""

    def __init__(self, job: Job, rank: int, size: int) -> None:
        ours, theirs = Pipe()
        self.link = Link(ours)
        with theirs:
            place = [str(theirs.fileno()), str(job.directory), job.device, str(rank), str(size)]
            self.process = subprocess.Popen(
                [sys.executable, "-c", _MEMBER, *place],
                pass_fds=[theirs.fileno()],
                env=environment_of(),
            )

    def tell(self, call: str, *arguments: Any) -> None:
        self.link.send((call, arguments))

    def answer(self, timeout: float = START_TIMEOUT) -> Any:
        """Of the last call that has not been answered; an exception is returned, too."""
        return self.link.recv(timeout)

    def signal(self, number: int) -> None:
        """Returns when it has stopped or ended."""
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            until(lambda: is_stopped(self.process.pid), "the member has stopped")
        if number == signal.SIGKILL:
            self.process.wait(START_TIMEOUT)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(START_TIMEOUT)
        self.link.close()


def ask(members: list[Member], call: str, *arguments: Any) -> list[Any]:
    """All do it at once; their answers."""
    for member in members:
        member.tell(call, *arguments)
    return [member.answer() for member in members]


def serve(descriptor: str, directory: str, device: str, rank: str, size: str) -> None:
    link = Link(Connection(int(descriptor)))
    world = zh.World(Path(directory), int(rank), int(size), device=device, timeout=TIMEOUT)
    while True:
        call, arguments = link.recv(600)
        try:
            if call == "shrink":
                before, world = world, world.shrink(*arguments)
                before.close()
                link.send((world.rank, world.size, world.name))
            else:
                link.send(CALLS[call](world, *arguments))
        except Exception as error:  # noqa: BLE001  the test looks at it
            link.send(error)


def meet(world: zh.World) -> str:
    world.barrier()
    return "met"


def exchange(world: zh.World) -> list[int]:
    """A collective, and a segment: what all have given, then what the left one has written here."""
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


def state(world: zh.World) -> list[str]:
    return world.state()


CALLS = {"meet": meet, "exchange": exchange, "state": state}
