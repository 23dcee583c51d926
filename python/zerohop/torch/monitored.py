"""monitored_barrier: a barrier that tells which ranks have not come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerohop._world.deadline import Deadline
from zerohop.errors import Error, TransferTimeout

if TYPE_CHECKING:
    from zerohop.torch.calls import Calls

_FIRST_TAG = 2**31  # above those of programs
_CALLS = 2**30 - 1  # after so many tags repeat; none is that of a goodbye


def monitored_barrier(calls: Calls, number: int, seconds: float, wait_all_ranks: bool) -> None:
    """number: of the call, the same on all ranks. Each rank tells rank 0, which answers all once all have come.

    Raises TransferTimeout, with the words of PyTorch's own.
    """
    deadline, tag = Deadline(seconds), _FIRST_TAG + number % _CALLS * 2
    if calls.rank == 0:
        _hear_all(calls, tag, deadline, seconds, wait_all_ranks)
        return
    try:
        calls.post_word(0, tag, deadline.left).wait(deadline.left)
        calls.hear_word(0, tag + 1, deadline.left).wait(deadline.left)
    except Error as error:
        late = isinstance(error, TransferTimeout)
        why = (
            f"it has not answered in {seconds:g} s, and its error names the ranks that are missing"
            if late
            else error
        )
        raise TransferTimeout(
            f"Rank {calls.rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0 of "
            f"{calls.name!r}: {why}"
        ) from None


def _hear_all(
    calls: Calls, tag: int, deadline: Deadline, seconds: float, wait_all_ranks: bool
) -> None:
    missing = []
    for rank in range(1, calls.size):
        if deadline.passed and not wait_all_ranks:
            raise TransferTimeout(
                f"Rank 0 timed out in monitoredBarrier of {calls.name!r} before it heard from rank {rank}: give it more than {seconds:g} s"
            )
        try:
            calls.hear_word(rank, tag, deadline.left).wait(deadline.left)
        except Error as error:
            missing.append(rank)
            if not wait_all_ranks:
                raise _failed(f"Rank {rank}", calls.name, seconds, f" ({error})") from None
    if missing:
        raise _failed(f"Ranks {', '.join(map(str, missing))}", calls.name, seconds, "")
    words = [calls.post_word(rank, tag + 1, deadline.left) for rank in range(1, calls.size)]
    for word in words:
        word.wait(deadline.left)


def _failed(who: str, group: str, seconds: float, why: str) -> TransferTimeout:
    return TransferTimeout(
        f"{who} failed to pass monitoredBarrier of {group!r} in {seconds:g} s{why}"
    )
