"""A Line: messages between this rank and another one, in order both ways.

Each side has an inbox of a few cells, which the other one fills in turn; a notification tells how many have been filled so
far, and another one, back, how many have been emptied. Such a count covers all messages up to it, also one whose own
notification was withheld because its bytes did not arrive: so none is told behind a failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zerohop import _core
from zerohop.collectives.deadline import Deadline
from zerohop.collectives.header import NBYTES, Label, Message, What, pack, unpack
from zerohop.errors import Error, TransferTimeout

if TYPE_CHECKING:
    from zerohop.collectives.outbox import Outbox
    from zerohop.roster import Roster

__all__ = ["CELL", "EAGER", "OVER", "Line", "Slots"]

# Bytes of a block that goes along with its header; a larger one is written to where it belongs, once that is known, which
# takes one more message. Between two processes of one busy host of two cores, by p2p, send_recv took 118 us of 64 KiB that went
# along and 215 us written, and of 256 KiB 175 and 533 us; but a rank has CELLS of it for each other one that it has met.
EAGER = 64 << 10
CELL = NBYTES + EAGER
CELLS = 4  # a call needs three: READY, ANNOUNCE and DONE, before the other side has looked
_RETURN = 2  # cells emptied, of which the other side is told at once
_MODULUS = 1 << 30  # counts go round; a slot has 32 bits, and 0 is an empty one
OVER = 1 << 31  # in a slot, beside the count: that rank's collectives have come to an end


class Slots:
    """One range for each purpose, of a slot for each rank that writes there: first, first + 1, ..."""

    def __init__(self, slots: range) -> None:
        self.size = len(slots) // 2
        self.messages, self.credits = slots.start, slots.start + self.size


class _Posted(NamedTuple):
    """What goes out. messages: that are over there once it and all before it have ended well."""

    transfer: _core.Transfer
    messages: int
    is_block: bool


class Line:
    """rank: the other one. outbox: from which all lines send.

    watch: listens for credits so many seconds while the other side keeps this one waiting; raises when that is no use.
    """

    def __init__(
        self,
        rank: int,
        peer: _core.Peer,
        roster: Roster,
        outbox: Outbox,
        slots: Slots,
        watch: Callable[[Line, Deadline, float], None],
    ) -> None:
        self.rank, self.peer, self._roster = rank, peer, roster
        own_rank, name, endpoint = roster.rank, roster.name, roster.endpoint
        self._outbox, self._watch = outbox, watch
        self._message_slot, self._credit_slot = slots.messages + own_rank, slots.credits + own_rank
        self._memory = endpoint.empty(CELLS * CELL)
        self._inbox = memoryview(self._memory)  # type: ignore[arg-type]
        self._far: _core.RemoteMemory | None = None
        self._far_name = _inbox_name(name, own_rank, rank)
        self._sent = self._free = self._arrived = self._taken = 0  # messages; free: emptied there
        self._posted: deque[_Posted] = deque()  # of which nobody knows yet that it ended well
        self._good = 0  # messages sent that are over there
        self._checked = False  # the two ends compare what arrives (integrity=1)
        self._early: deque[Message] = deque()  # of send_recv, for a later call
        self.far_is_over = False
        endpoint.share(_inbox_name(name, rank, own_rank), self._memory)

    # --- what the slots tell ---

    def heard(self, value: int) -> None:
        """Of the other side's messages."""
        news = (value - 1 - self._arrived) % _MODULUS
        if (
            news <= CELLS
        ):  # else it is an earlier count: of a rank that gives up before it knows more
            self._arrived += news
        self.far_is_over |= value >= OVER

    def has_room(self, value: int) -> None:
        """Of this side's messages, over there."""
        self._free += (value - 1 - self._free) % _MODULUS
        self.far_is_over |= value >= OVER

    # --- messages ---

    @property
    def has_news(self) -> bool:
        """Whether a message has come that nobody has taken."""
        return self._taken < self._arrived

    def send(
        self, what: What, label: Label, payload: NDArray[np.uint8], deadline: Deadline
    ) -> None:
        """Done when the payload is copied. Raises TransferTimeout, PeerLost, and what ended an earlier transfer.

        Where transfers are checked it waits for the earlier ones: its own notification would tell of them, too.
        """
        while self._sent - self._free >= CELLS:
            self.look()
            self._watch(self, deadline, deadline.slice)
        inbox = self._far or self._look_up(deadline)
        if self._checked:
            self._settle(deadline)
        self.look()
        begin = self._sent % CELLS * CELL
        there = inbox[begin : begin + NBYTES + len(payload)]
        note = (self._message_slot, 1 + (self._sent + 1) % _MODULUS)
        header = pack(what, label, len(payload))
        posted = self._outbox.write(self.rank, self.peer, there, header, payload, note, deadline)
        self._sent += 1
        self._posted.append(_Posted(posted, self._sent, is_block=False))

    def write(self, block: _core.Memory, there: _core.RemoteMemory, deadline: Deadline) -> None:
        """Posts it; the next message is behind it. Raises as send()."""
        try:
            posted = self.peer.write(block, there, timeout=deadline.left)
        except Error as error:
            raise self._roster.named(error, self.rank) from None
        self._posted.append(_Posted(posted, self._sent, is_block=True))

    def look(self) -> None:
        """Never blocks. Raises what ended an earlier transfer."""
        while self._posted and self._posted[0].transfer.done:
            self._complete(0.0)

    def finish(self, deadline: Deadline) -> None:
        """Until blocks are over there, and what is checked; raises what ended them."""
        while any(posted.is_block for posted in self._posted):
            self._complete(deadline.left)
        if self._checked:
            self._settle(deadline)
        self.look()

    def _settle(self, deadline: Deadline) -> None:
        while self._posted:
            self._complete(deadline.left)

    def _complete(self, seconds: float) -> None:
        """The oldest one; one that failed stays."""
        posted = self._posted[0]
        try:
            posted.transfer.wait(seconds)
        except Error as error:
            raise self._roster.named(error, self.rank) from None
        self._good = posted.messages
        self._posted.popleft()

    def take(self, wanted: set[What], *, of_all: bool) -> Message | None:
        """The next one, None if there is none. One of send_recv that is not wanted yet is kept for later.

        of_all: for a collective of all ranks, before which everything of send_recv has to be received; else the caller finds it.
        """
        for number, message in enumerate(self._early):
            if of_all or message.what in wanted:
                del self._early[number]
                return message
        while self._taken < self._arrived:
            message = self._next()
            if of_all or message.what in wanted or message.label.kind != "send_recv":
                return message
            self._early.append(message)
        return None

    def untaken(self) -> list[Label]:
        """Of what has come and nobody has taken."""
        begins = [number % CELLS * CELL for number in range(self._taken, self._arrived)]
        waiting = [unpack(self._inbox[begin : begin + CELL]) for begin in begins]
        return [message.label for message in (*self._early, *waiting)]

    def _next(self) -> Message:
        begin = self._taken % CELLS * CELL
        message = unpack(self._inbox[begin : begin + CELL])
        self._taken += 1
        if self._taken % _RETURN == 0:
            with suppress(Error):  # a rank that has left wants no more
                self.peer.notify(self._credit_slot, 1 + self._taken % _MODULUS)
        return message

    def _look_up(self, deadline: Deadline) -> _core.RemoteMemory:
        while self._far is None:
            try:
                self._far = self.peer.lookup(self._far_name, deadline.slice)
            except TransferTimeout:
                self._watch(self, deadline, 0)
            except Error as error:
                raise self._roster.named(error, self.rank) from None
            else:
                route = self.peer.route(self._memory, self._far)
                self._checked = bool(route.settings["integrity"])
        return self._far

    def ring_off(self, deadline: Deadline) -> None:
        """Tells the other side that there is nothing more to wait for here, behind the messages that are over there.

        While something is still under way, which may fail, it tells nothing: the other side asks.
        """
        with suppress(Error):
            self._settle(deadline)
        if self._posted and not self._posted[0].transfer.done:
            return
        with suppress(Error):
            self.peer.notify(self._message_slot, OVER | 1 + self._good % _MODULUS)
            self.peer.notify(self._credit_slot, OVER | 1 + self._taken % _MODULUS)


def _inbox_name(name: str, source: int, target: int) -> str:
    return f"collectives of {name!r}, from rank {source} to {target}"
