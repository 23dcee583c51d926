"""A rank of mpirun that carries out each program of a file by Worlds and by MPI: run as `python -m support.programs.mpi_rank FILE`."""

import sys
from pathlib import Path
from typing import Any

import zerohop as zh
from mpi4py import MPI

from support.programs.model import Program, Step
from support.programs.mpi_groups import GROUPS
from support.programs.on_mpi import OnMpi
from support.programs.on_world import OnWorld


def run(program: Program, groups: dict[str, tuple[Any, ...]]) -> None:
    for number, step in enumerate(program.steps):
        for group in groups.get(step.group, ()) if step.call != "wait" else ():
            wrong = group.perform(program, number)()
            assert not wrong, f"rank {group.rank}, {type(group).__name__}, step {number}: {wrong}"


def main() -> None:
    text = Path(sys.argv[1]).read_text()
    programs = [eval(line, {"Program": Program, "Step": Step}) for line in text.splitlines()]
    everyone = MPI.COMM_WORLD
    few = everyone.Split(int(everyone.Get_rank() == 1), -everyone.Get_rank())  # 3, 2, 0
    comms = {"all": (everyone, 1), "all over soft0": (everyone, 0), "three": (few, 1)}
    groups = {}
    for name, (comm, p2p) in comms.items():
        if comm.Get_size() == GROUPS[name].size:
            world = zh.World.from_mpi(comm, name=name, p2p=p2p, device="soft0", timeout=20.0)
            groups[name] = (OnWorld(world), OnMpi(comm))
    for program in programs:
        try:
            run(program, groups)
        except BaseException:
            print(f"in {program!r}", file=sys.stderr, flush=True)
            raise
    everyone.Barrier()
    if everyone.Get_rank() == 0:
        print(f"{len(programs)} programs")


if __name__ == "__main__":
    main()
