"""A process that carries out programs with others, one program after the other: run as `python -m support.programs.rank`.

It has a part in several groups, which are made once: Worlds of the same ranks and of some, and groups of torch.distributed.
"""

import faulthandler
import os
import signal
import sys
import traceback
from collections import deque
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import zerohop as zh

from support.patience import patient
from support.programs.model import BEHIND, FAR, Program, Step, neighbours
from support.programs.on_world import Finish, OnWorld
from support.programs.strategies import Group
from support.programs.ways import put_elsewhere, stop_after_each_step, watch
from support.spawned import obey

SIZE = 5  # processes
STOPS = 3  # the process whose calls stop after each step
TIMEOUT = patient(15.0)  # seconds, of each call: nothing takes so long
_FAULTS = "seed=5,duplicate=0.05,corrupt=0.01,delay=200us,delay_rate=0.05"


class Made(NamedTuple):
    """ranks: the processes that are in it, in the order of its ranks. options: of the World; p2p: of the group of PyTorch."""

    ranks: tuple[int, ...]
    options: dict[str, Any]


WORLDS = {
    "five": Made((0, 1, 2, 3, 4), {"p2p": 1}),
    "five over soft0": Made((0, 1, 2, 3, 4), {"p2p": 0}),
    "three checked": Made((4, 2, 0), {"p2p": 1, "integrity": 1}),
    "three with faults": Made((1, 2, 3), {"p2p": 0, "faults": _FAULTS}),
    "two": Made((1, 3), {"p2p": 1}),
    "two over soft0": Made((4, 1), {"p2p": 0}),
}
SHRUNK = "four that are left"  # of a World whose rank 2 has left
TORCH = {
    "torch, five": Made((0, 1, 2, 3, 4), {"p2p": 1}),
    "torch, three over soft0": Made((0, 2, 3), {"p2p": 0}),
    "torch, two": Made((1, 4), {"p2p": 1}),
}
_TORCH_CALLS = (
    "broadcast", "scatter", "gather", "all_gather", "all_to_all", "all_reduce", "reduce", "reduce_scatter", "ring",
    "pair", "barrier",
)  # fmt: skip


def torch_takes(step: Step) -> bool:
    """What torch.distributed has, and no message of a rank to itself."""
    to_itself = step.call == "ring" and any(
        neighbours(step, rank, len(step.forms))[0] == rank for rank in range(len(step.forms))
    )
    is_unsigned = step.dtype in ("uint16", "uint32", "uint64")
    complex_op = step.dtype.startswith("complex") and step.op not in ("", "sum")
    return not (to_itself or is_unsigned or complex_op or step.op in ("land", "lor"))


def groups() -> dict[str, Group]:
    """By name, as the programs know them."""
    made = {name: Group(len(each.ranks)) for name, each in WORLDS.items()}
    made[SHRUNK] = Group(4)
    for name, each in TORCH.items():
        made[name] = Group(len(each.ranks), _TORCH_CALLS, torch_takes)
    return made


class Rank:
    def __init__(self, directory: Path, rank: int) -> None:
        self._directory, self._rank = directory, rank
        watch()
        if rank == STOPS:
            stop_after_each_step()
        self._kept: list[Any] = []
        self._groups: dict[str, Any] = {}
        for name, made in WORLDS.items():
            if rank in made.ranks:
                self._groups[name] = OnWorld(self._world(name, made))
        self._shrink()
        self._join_torch()

    def _world(self, name: str, made: Made) -> zh.World:
        is_far = made.options["p2p"] == 0 or "integrity" in made.options
        assert is_far == (name in FAR)
        place = (self._directory, made.ranks.index(self._rank), len(made.ranks))
        options = {"device": "soft0", "timeout": TIMEOUT, **made.options}
        return zh.World(*place, name=name, **options)

    def _shrink(self) -> None:
        before = self._world("before", Made(tuple(range(SIZE)), {"p2p": 1}))
        before.barrier()
        if self._rank == 2:
            before.close()
        else:
            self._groups[SHRUNK] = OnWorld(before.shrink())
            before.close()

    def _join_torch(self) -> None:
        import torch.distributed as dist

        from support.programs.on_torch import WithGloo
        from support.torch_ranks import join

        os.environ["ZEROHOP_DEVICE"] = "soft0"
        join(self._directory / "torch", self._rank, SIZE, "gloo", TIMEOUT)
        for name, made in TORCH.items():
            os.environ["ZEROHOP_P2P"] = str(made.options["p2p"])
            pair = [dist.new_group([*made.ranks], backend=each) for each in ("zerohop", "gloo")]
            if self._rank in made.ranks:
                self._groups[name] = WithGloo(*pair)

    def ready(self) -> str:
        """All is made."""
        return ""

    def run(self, program: Program) -> tuple[bool, list[str]]:
        """Whether it may be asked to do more, and what was wrong."""
        wrong: list[str] = []
        behind: deque[tuple[int, Finish]] = deque()

        def end(number: int, finish: Finish) -> None:
            said = finish()
            if said:
                wrong.append(f"step {number}: {said}")

        number = 0
        put_elsewhere(program.elsewhere == self._rank)
        try:
            for number, step in enumerate(program.steps):
                group = self._groups.get(step.group)
                if group is None:
                    continue
                if step.call == "wait":
                    if behind:
                        end(*behind.popleft())
                    continue
                finish = group.perform(program, number)
                if step.forms and BEHIND in step.forms[group.rank]:
                    behind.append((number, finish))
                else:
                    end(number, finish)
            while behind:
                end(*behind.popleft())
        except Exception:  # noqa: BLE001  the test has it
            wrong.append(f"step {number} raised\n{traceback.format_exc()}")
            return False, wrong
        return True, wrong


def main(descriptor: str, directory: str, rank: str) -> None:
    faulthandler.register(signal.SIGUSR1)
    made = Rank(Path(directory), int(rank))
    obey(Connection(int(descriptor)), lambda name, *given: getattr(made, name)(*given))


if __name__ == "__main__":
    main(*sys.argv[1:])
