"""recv from any rank.

The engine receives from one Peer at a time. A recv into an array of 0 bytes, a "probe", at each Peer shows who has sent something:
the first message of the tag makes it fail, and stays for the recv that takes it. An empty message ends in the probe itself.
"""

from __future__ import annotations

import select
import threading
from collections import defaultdict, deque
from contextlib import suppress
from typing import Any

from zerohop import _core
from zerohop._world.deadline import Deadline
from zerohop.errors import Error, PeerLost, TransferTimeout, reworded
from zerohop.torch.advice import advised
from zerohop.torch.foreign import torch
from zerohop.torch.messages import GOODBYE, Messages
from zerohop.torch.works import MessageWork, Work
from zerohop.world import World


class _Probe:
    """overtaken: a recv that takes data has been posted after it, and gets the next message that is not empty."""

    def __init__(self, transfer: _core.Transfer) -> None:
        self.transfer, self.overtaken = transfer, False

    @property
    def took_empty(self) -> bool:
        """Whether it has ended with an empty message; False: with an error. Called once it is done. Raises PeerLost."""
        try:
            self.transfer.wait(0.0)
        except ValueError:  # a message with data has come, and perhaps another recv has taken it
            return False
        return True


class AnySource:
    """The recvs of one group that name no rank. Recvs of a named rank pass through here for the empty messages. Thread-safe."""

    def __init__(self, world: World, messages: Messages) -> None:
        self._world, self.messages = world, messages
        self._nothing = torch.empty(0, dtype=torch.uint8, device="cpu")
        self._lock = threading.Lock()  # protects the following; not held while waiting for messages
        self._probes: dict[tuple[int, int], _Probe] = {}  # by rank and tag; one each
        self._waiting: defaultdict[int, deque[AnySourceWork]] = defaultdict(deque)  # by tag
        self._last = world.rank  # the rank that was served last; the one after it is the next
        self._left: set[int] = set()  # ranks that have said goodbye
        self.senders: set[int] = set()  # ranks whose messages were asked for, or taken

    def receive(self, rank: int, array: Any, tag: int, seconds: float) -> _core.Transfer:
        """A recv from that rank. seconds: to connect."""
        peer = self.messages.peer(rank, seconds)
        self.senders.add(rank)
        if not self._probes:
            return self.messages.recv(peer, array, tag)
        with self._lock:
            probe = self._probes.get((rank, tag))
            if probe is not None and probe.transfer.done:
                del self._probes[rank, tag]
                if probe.took_empty:  # before all that this recv could get
                    return probe.transfer
            elif probe is not None and array.nbytes == 0 and not probe.overtaken:
                del self._probes[rank, tag]
                return probe.transfer  # it is what this recv would post
            elif probe is not None:
                probe.overtaken = True
            return self.messages.recv(peer, array, tag)

    def post(self, work: AnySourceWork) -> None:
        with self._lock:
            self._waiting[work.tag].append(work)
        self.serve(work.tag)

    def serve(self, tag: int) -> None:
        """Gives the messages of that tag that have arrived to the works that wait for them, in the order of their calls."""
        with self._lock:
            while waiting := self._waiting.get(tag):
                work = waiting[0]
                try:
                    found = self._find(tag, work.array)
                except (Error, ValueError) as error:
                    work.failed(error)
                else:
                    if found is None:
                        return
                    work.begun(*found)
                waiting.popleft()
            self._waiting.pop(tag, None)

    def wait(self, work: AnySourceWork, deadline: Deadline) -> None:
        """Returns when the work has got its message, which may still be on its way. Raises TransferTimeout."""
        while True:
            self.serve(work.tag)
            if work.is_served:
                return
            if deadline.passed:
                raise TransferTimeout(f"{work.text}: no rank has sent such a message in time")
            if not self._meet(deadline):
                self._sleep(work.tag, deadline.slice)
                self.messages.look_around()

    def close(self) -> None:
        """Call it once the World is closed. Takes the errors of the probes, so that no warning reports them."""
        with self._lock:
            for probe in self._probes.values():
                with suppress(Error, ValueError):
                    probe.transfer.wait(0.0)
            self._probes.clear()

    def _others(self) -> list[int]:
        size = self._world.size
        ranks = ((self._last + step) % size for step in range(1, size + 1))
        return [rank for rank in ranks if rank != self._world.rank]

    def _find(self, tag: int, array: Any) -> tuple[int, _core.Transfer] | None:
        """The rank of a message that has arrived, and its recv. Raises ValueError (it does not fit), PeerLost if there is none."""
        lost: PeerLost | None = None
        met = set(self.messages.with_peer())
        for rank in self._others():
            if rank not in met and self.messages.why_lost(rank) is None:
                continue  # not yet connected
            transfer, error = self._take_last(rank, tag, array)
            if transfer is not None:
                self._last = rank
                self.senders.add(rank)
                return rank, transfer
            if error is not None and rank not in self._left:
                lost = lost or reworded(error, f"rank {rank}: {advised(error)}")
        if lost is not None:
            raise lost
        if self._left.issuperset(self._others()):
            raise PeerLost("all other ranks have left the group")
        return None

    def _take_last(
        self, rank: int, tag: int, array: Any
    ) -> tuple[_core.Transfer | None, PeerLost | None]:
        """As _take(), and the error if that rank is lost: what it sent before counts."""
        try:
            peer = self.messages.peer(rank, 0.0)
            error = self.messages.why_lost(rank)
            self._hear_goodbye(peer, rank)
            return self._take(peer, rank, tag, array), error
        except PeerLost as gone:
            return None, gone

    def _hear_goodbye(self, peer: _core.Peer, rank: int) -> None:
        with suppress(PeerLost):
            goodbye = None if rank in self._left else self._take(peer, rank, GOODBYE, self._nothing)
            if goodbye is not None:
                self._left.add(rank)

    def _take(self, peer: _core.Peer, rank: int, tag: int, array: Any) -> _core.Transfer | None:
        """The recv of a message that has arrived, or None; then a probe is posted."""
        while True:
            probe = self._probes.get((rank, tag))
            if probe is not None:
                if not probe.transfer.done:
                    return None
                del self._probes[rank, tag]
                if probe.took_empty:
                    return probe.transfer
            try:
                self._probes[rank, tag] = _Probe(self.messages.recv(peer, self._nothing, tag))
            except ValueError:
                # A message waits, and nobody else takes it while this thread has the lock.
                return self.messages.recv(peer, array, tag)

    def _meet(self, deadline: Deadline) -> bool:
        """Connects to one more rank, so that it can be probed. False: there is none, or it does not answer."""
        met = self.messages.with_peer()
        for rank in self._others():
            if rank not in met and self.messages.why_lost(rank) is None:
                try:
                    self.messages.peer(rank, deadline.slice)
                except TransferTimeout:
                    return False
                except PeerLost:
                    return True  # _find() reports it
                return True
        return False

    def _sleep(self, tag: int, seconds: float) -> None:
        """Returns when a probe of that tag has ended."""
        bell, rings = _core.Bell(), select.poll()
        rings.register(bell.fileno(), select.POLLIN)
        with self._lock:
            probes = [probe for (_, its), probe in self._probes.items() if its == tag]
        for probe in probes:
            bell.watch(probe.transfer, 0)
        rings.poll(seconds * 1e3)


class AnySourceWork(Work):
    """A recv from the rank whose message comes first.

    No thread looks for the message: wait(), is_completed() and other recvs from any rank with the same tag do.
    """

    def __init__(
        self, source: AnySource, text: str, tensor: Any, array: Any, tag: int, seconds: float
    ) -> None:
        super().__init__([tensor], seconds)
        self.text, self.array, self.tag = text, array, tag
        self._source = source
        self._message: MessageWork | None = None
        self._error: Exception | None = None

    @property
    def is_served(self) -> bool:
        return self._message is not None or self._error is not None

    def begun(self, rank: int, transfer: _core.Transfer) -> None:
        self._message = MessageWork(
            self.text,
            rank,
            transfer,
            self._outputs,
            self._seconds,
            self._source.messages.look_at,
            self.array.nbytes,
        )

    def failed(self, error: Error | ValueError) -> None:
        text = f"{self.text}: {error}"
        self._error = reworded(error, text) if isinstance(error, Error) else ValueError(text)

    def is_completed(self) -> bool:
        if not self.is_served:
            self._source.serve(self.tag)
        if self._message is not None:
            return self._message.is_completed()
        return self._error is not None

    def _about(self) -> str:
        if self._message is not None:
            return f"{self._message._about()} from rank {self._message.source_rank()}"
        return f"{self.text}, {'under way' if self._error is None else 'failed'}"

    def _join(self, seconds: float) -> None:
        deadline = Deadline(seconds)
        if not self.is_served:
            self._source.wait(self, deadline)
        if self._message is not None:
            return self._message._join(deadline.left)
        if self._error is not None:
            raise self._error

    def source_rank(self) -> int:
        """In the group; -1 before a message has come."""
        return -1 if self._message is None else self._message.source_rank()

    _source_rank = source_rank
