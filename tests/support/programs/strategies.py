"""Programs as hypothesis makes them: small and simple ones first."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hypothesis import strategies as st
from zerohop.collectives.lines import EAGER

from support.programs.model import (
    IN_PARTS,
    REDUCTIONS,
    ROOTED,
    Program,
    Step,
    kind_of,
)
from support.reduced import OPS

MOVES = (*IN_PARTS[:-1], "broadcast", "ring", "pair")
DTYPES = (*OPS["sum"],)
MOVED = ("int8", "int32", "float64", "bfloat16", "bool", "complex128")
# Bytes of a block; a step takes an element more or less than that.
SIZES = (0, 4, 8, 100, 1000, 4096, 20_000, EAGER, 100_000, 2 * EAGER, 300_000)
LARGE = ((1 << 20), (1 << 20) + 64, 3 << 20)
FORMS = ("", "b", "o", "ob", "l", "lb", "ol", "m", "mb", "om", "t", "tb", "lt")
GAPPED = ("g", "gb", "go", "gt", "")


@dataclass(frozen=True)
class Group:
    """size: its ranks. calls: that it has; takes: of them, those that it takes."""

    size: int
    calls: tuple[str, ...] = (*MOVES, *REDUCTIONS, "number", "barrier")
    takes: Callable[[Step], bool] = lambda step: True


@st.composite
def steps(draw: st.DrawFn, groups: Mapping[str, Group]) -> Step:
    name = draw(st.sampled_from(sorted(groups)))
    group = groups[name]
    call = draw(st.sampled_from((*group.calls, "wait")))
    if call in ("wait", "barrier"):
        return Step(name, call)
    op, dtypes = "", MOVED
    if call in (*REDUCTIONS, "number"):
        op = draw(st.sampled_from(sorted(OPS)))
        dtypes = tuple(OPS[op])
        if call == "number":
            dtypes = tuple({"bool", "int64", "float64", "complex128"} & {*dtypes})
        if (call == "scan" and op == "avg") or (call == "number" and op == "premul_sum"):
            op = "sum"
    dtype = draw(st.sampled_from(sorted(dtypes)))
    nbytes = draw(st.one_of(st.sampled_from(SIZES), st.sampled_from(SIZES), _SOMETIMES_LARGE))
    count = max(0, nbytes // kind_of(dtype).itemsize + draw(st.sampled_from((0, 0, 1, -1))))
    return Step(
        name,
        call,
        1 if call == "number" else count,
        dtype,
        op,
        draw(st.integers(0, group.size - 1)) if call in (*ROOTED, "ring") else 0,
        draw(st.sampled_from((0, 0, 1, 2))) if call in (*IN_PARTS, "pair") else 0,
        tuple(draw(st.sampled_from(_forms(call))) for _ in range(group.size)),
    )


_SOMETIMES_LARGE = st.integers(0, 11).flatmap(
    lambda number: st.sampled_from(LARGE) if number == 11 else st.sampled_from(SIZES)
)


def _forms(call: str) -> tuple[str, ...]:
    if call == "number":
        return ("",)
    return (*FORMS, *GAPPED) if call in ("all_reduce", "reduce", "scan") else FORMS


def programs(
    groups: Mapping[str, Group], processes: int = 0, most: int = 12
) -> st.SearchStrategy[Program]:
    """processes: of which one may have its arrays elsewhere."""
    taken = steps(groups).filter(lambda step: step.call == "wait" or groups[step.group].takes(step))
    return st.builds(
        Program,
        st.integers(0, 999),
        st.lists(taken, min_size=1, max_size=most).map(tuple),
        st.sampled_from((None, None, None, *range(processes))),
    )
