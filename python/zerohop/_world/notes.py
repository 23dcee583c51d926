"""The notifications of a Segment on this rank: a range of slots of the Endpoint's board."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from zerohop._world.deadline import SLICE, Deadline
from zerohop.errors import Error, PeerLost, TransferTimeout

if TYPE_CHECKING:
    from zerohop._world.all_ranks import AllRanks

_LARGEST = 2**32 - 1  # value of a notification


class Notes:
    """slots: range on the board, starting at notification 0; they are emptied. what: the segment's name in messages."""

    def __init__(self, membership: AllRanks, slots: range, what: str) -> None:
        self._membership, self._slots, self._what = membership, slots, what
        membership.empty(slots)  # late notifications for a closed segment

    def close(self) -> None:
        """Gives up the slots, which another segment may use from now on."""
        self._slots = range(0)

    def slots(self) -> tuple[int, int]:
        """The first one on the board, and their number. Raises Error once closed."""
        self._check(0, 1)
        return self._slots.start, len(self._slots)

    def at(self, slot: int, value: int) -> tuple[int, int]:
        """(slot, value) as on any rank's board. Raises IndexError, ValueError, TypeError."""
        self._check(slot, 1)
        if not 1 <= operator.index(value) <= _LARGEST:
            raise ValueError(
                f"the value of a notification is from 1 to 2**32 - 1, not {value}: 0 is an empty slot"
            )
        return self._slots.start + slot, value

    def reset(self, slot: int) -> int:
        self._check(slot, 1)
        return self._membership.endpoint.reset_notify(self._slots.start + slot)

    def wait_some(self, first: int, count: int | None, timeout: float) -> int:
        """As Segment.notify_waitsome()."""
        if count is None:
            count = max(1, len(self._slots) - operator.index(first))
        self._check(first, count)
        deadline = Deadline(timeout)
        begin = self._slots.start + first
        while True:
            left = deadline.left
            found = self._membership.find_note(begin, count, min(SLICE, left), reset=False)
            if found is not None:
                return found[0] - self._slots.start
            if left == 0:
                raise TransferTimeout(
                    f"{self._what}: no notification came to {_named(first, count)} in time"
                )
            if not self._membership.has_company(deadline):
                self._check_again(begin, count)

    def _check_again(self, begin: int, count: int) -> None:
        if self._membership.find_note(begin, count, 0, reset=False) is None:
            raise PeerLost(
                f"{self._what}: all other ranks are lost, so no rank is left that could notify"
            )

    def _check(self, first: int, count: int) -> None:
        number = len(self._slots)
        if number == 0:
            raise Error(f"{self._what} is closed")
        if not (
            0 <= operator.index(first) < number and 1 <= operator.index(count) <= number - first
        ):
            raise IndexError(
                f"{self._what}: {_named(first, count)} is not among slots 0 to {number - 1}"
            )


def _named(first: int, count: int) -> str:
    return f"slot {first}" if count == 1 else f"slots {first} to {first + count - 1}"
