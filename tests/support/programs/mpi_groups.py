"""The groups of programs that MPI runs too, and what it takes of them. Does not import MPI, which would start it here."""

from support.programs.model import Step
from support.programs.strategies import Group
from support.reduced import COMPLEX, FLOATS, HALVES

RANKS = 4
_OPS = ("sum", "prod", "min", "max", "band", "bor", "bxor", "land", "lor")


def mpi_takes(step: Step) -> bool:
    logical = step.op in ("land", "lor")
    return not (
        step.dtype in HALVES
        or (step.op and step.op not in _OPS)
        or (logical and step.dtype in (*FLOATS, *COMPLEX))
        or (step.op and step.dtype == "bool" and not logical)
    )


GROUPS = {
    "all": Group(RANKS, takes=mpi_takes),
    "all over soft0": Group(RANKS, takes=mpi_takes),
    "three": Group(3, takes=mpi_takes),
}
