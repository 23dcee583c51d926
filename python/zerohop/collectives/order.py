"""The order of a World's collectives: one at a time, in the order of the calls, in the caller's thread or a background thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any

from zerohop import _core
from zerohop._world.advice import Advice
from zerohop._world.deadline import SLICE, Deadline
from zerohop._world.ending import Cause, EndedElsewhere, Ending, Mismatch
from zerohop._world.failure_reports import LATE, LOST, MISMATCH, OTHER, described
from zerohop._world.history import Called, Common
from zerohop.collectives.blocks import Flat
from zerohop.collectives.lines import Lines
from zerohop.errors import Error, PeerLost, TransferTimeout, reworded


class Collective:
    """One call, which may still be running. Dropping the object changes nothing.

    Small calls that are done when they return share one object per kind, whose timeout is the Endpoint's.

    timeout: bound of the call in seconds, from the end of the calls before it.
    """

    enqueued = False  # in a stream, which later work of the stream follows

    def __init__(self, text: str, timeout: float, done: bool = False) -> None:
        self._text, self.timeout, self._done = text, timeout, done
        self._error: BaseException | None = None
        if not done:
            # A latch that opens at the end; an Event costs 10 us more.
            self._under_way = threading.Lock()
            self._under_way.acquire()
            self._followers: list[Callable[[], None]] = []

    @property
    def done(self) -> bool:
        """Whether it has ended, with or without error. Never blocks."""
        return self._done

    def wait(self, timeout: float | None = None) -> None:
        """Waits until outputs are complete and inputs may be changed. Any number of threads may wait.

        timeout: seconds (default: the call's); after TransferTimeout the call continues. Raises the error that ended it: PeerLost,
        TransferTimeout, ValueError (ranks have made different calls), ...
        """
        if not self.join(self.timeout if timeout is None else max(0.0, float(timeout))):
            raise TransferTimeout(f"{self._text} is still running; it continues", effect="all")
        if self._error is not None:
            raise self._error

    @property
    def text(self) -> str:
        """Its name in messages."""
        return self._text

    @property
    def state(self) -> str:
        """ "under way", "done" or "failed". Never blocks."""
        return "under way" if not self._done else "done" if self._error is None else "failed"

    def join(self, seconds: float | None = None) -> bool:
        """Waits until it has ended, with or without error; None: as long as its own timeout."""
        if not self._done and self._under_way.acquire(timeout=-1 if seconds is None else seconds):
            self._under_way.release()  # for the next waiter
        return self._done  # another waiter may hold the latch for a moment

    def __await__(self) -> Generator[Any, None, None]:
        """As wait(), for coroutines, bounded by the call's own timeout. If the coroutine is cancelled, the call continues."""
        if not self.done:
            yield from self._await_end()
        self.wait(0.0)

    def _await_end(self) -> Generator[Any, None, Any]:
        from zerohop import aio  # asyncio, which most programs do not need

        return aio.await_call(self.on_end)

    def on_end(self, call: Callable[[], None]) -> None:
        """Calls it at the end, on any thread; at once if that has come."""
        if self._done:
            return call()
        self._followers.append(call)
        if self._done:  # meanwhile
            self._call_followers()
        return None

    def _call_followers(self) -> None:
        while self._followers:
            with suppress(IndexError):  # another thread has taken the last one
                self._followers.pop()()

    def _end(self, error: BaseException | None) -> None:
        self._error, self._done = error, True
        self._under_way.release()
        self._call_followers()

    def __repr__(self) -> str:
        return f"<zerohop.Collective {self._text}, {self.state}>"


class _Work:
    """A Collective that has been called, its body, and the one before it."""

    def __init__(
        self,
        collective: Collective,
        text: str,
        body: Callable[[Deadline], None],
        flats: Sequence[Flat],
        before: Collective | None,
    ) -> None:
        self.collective, self.text, self.body = collective, text, body
        self.flats, self.before = flats, before

    def finish(self, error: BaseException | None) -> None:
        """After this no other rank accesses the program's arrays."""
        for flat in self.flats:
            try:
                flat.close()
            except Error as failure:
                _core.report(f"{self.text}: {failure}")
        self.before = None
        self.collective._end(error)


class Order:
    def __init__(self, lines: Lines, ending: Ending, calls: _core.SmallCollectives) -> None:
        self._lines, self._ending, self._calls = lines, ending, calls
        self._history = lines.membership.history
        self._lock = threading.Lock()  # protects the following; never held while waiting
        self._last: Collective | None = None
        # For the background thread, which ends when it is empty.
        self._behind: deque[_Work] = deque()
        self._thread: threading.Thread | None = None
        self._served: _Work | None = None  # by the thread
        self._over = False

    def start(
        self,
        kind: str,
        common: Common,
        body: Callable[[Called, Deadline], None],
        flats: Sequence[Flat],
        seconds: float,
        wait: bool,
    ) -> Collective:
        """body: runs the call. flats: closed at its end. Raises its error, if it is waited for."""
        self._ending.look()
        with self._lock:
            self._lines.membership.check_open()  # here, so that join() misses no call
            refusal = self._ending.refusal(self._text(kind, 0))
            if refusal is not None:
                raise refusal
            self._calls.started()  # before it gets a number, so that the next one cannot overtake it
            try:
                call = self._add(kind, common)
            except BaseException:
                self._calls.finished()
                raise
            text = self._text(kind, call.number)
            collective = Collective(text, seconds)
            work = _Work(collective, text, lambda until: body(call, until), flats, self._last)
            self._last = collective
            if not wait:
                self._behind.append(work)
                self._start_thread()
        if wait:
            self._run(work)
            collective.wait()
        return collective

    def go_on(
        self, kind: str, number: int, body: Callable[[Deadline], None], seconds: float
    ) -> Collective:
        """Continues a call in the thread that holds the lock. Raises its error."""
        text = self._text(kind, number)
        collective = Collective(text, seconds)
        self._calls.started()
        self._run(_Work(collective, text, body, (), None), begun=True)
        collective.wait()
        return collective

    def check(self, kind: str) -> None:
        """Raises the error of a call after the end."""
        self._ending.look()
        refusal = self._ending.refusal(self._text(kind, 0))
        if refusal is not None:
            raise refusal

    def failed(self, text: str, error: BaseException) -> BaseException:
        """A call outside this order has failed. Reports to the others; returns the error to raise."""
        return self._give_up(Mismatch(str(error)) if isinstance(error, ValueError) else error, text)

    def _text(self, kind: str, number: int) -> str:
        """number: 0 for a send_recv, which concerns two ranks, and for a call without a number."""
        text = f"{kind} of {self._lines.membership.name!r}"
        return f"{text}, call {number}" if number else text

    def _add(self, kind: str, common: Common) -> Called:
        if kind != "send_recv":
            return self._history.add(kind, common)
        return Called(0, 0, 0, kind, common.root, common.nbytes, common.dtype)

    def untaken(self) -> str:
        """A text of messages that no call has taken; "" if there are none, or if another error has reported them."""
        with self._lock:
            under_way = self._last is not None and not self._last.done
        if under_way or self._ending.cause is not None:
            return ""
        if not self._calls.acquire(0.0):
            return ""
        try:
            parts = []
            for rank, labels in self._lines.untaken().items():
                more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
                parts.append(f"rank {rank} has called {labels[0]}{more}")
        finally:
            self._calls.release()
        return "; ".join(parts)

    def behind(self) -> list[Collective]:
        """The calls with wait=False that have not ended."""
        with self._lock:
            works = [*([self._served] if self._served else []), *self._behind]
        return [work.collective for work in works if not work.collective.done]

    def ring_off(self, seconds: float) -> None:
        """For the end of the World: tells the others. A call in progress does so itself."""
        if self._calls.acquire(0.0):
            try:
                self._lines.ring_off(seconds)
            finally:
                self._calls.release()

    def join(self, seconds: float) -> bool:
        """For the end of the World: waits at most `seconds` for calls in progress. Returns whether all have ended; then no call can begin any more."""
        deadline = Deadline(seconds)
        with self._lock:
            last = self._last
        if last is not None and not last.join(deadline.left):
            return False
        self._over = self._over or self._calls.acquire(deadline.left)  # also of small calls
        return self._over

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._serve, name="zerohop collectives", daemon=True
            )
            self._thread.start()

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self._behind:
                    self._thread = self._served = None
                    return
                work = self._served = self._behind.popleft()
            try:
                self._run(work)
            except Exception as failure:  # noqa: BLE001 it is in the Collective; the next has its turn
                _core.report(f"{work.text}: {failure!r}")

    def _run(self, work: _Work, *, begun: bool = False) -> None:
        """begun: the call already holds the lock."""
        error: BaseException | None = None
        nested = not begun and self._calls.mine
        try:
            if nested:
                raise Error(
                    "this thread is in a collective of this World: code inside it cannot call another one"
                )
            if work.before is not None:
                work.before.join()  # bounded by its own timeout
            if not begun and not self._calls.acquire(work.collective.timeout):
                raise TransferTimeout(
                    "another thread of this rank was in a collective all the time"
                )
            if not begun:
                error = self._ending.refusal(work.text)
            if error is None:
                work.body(Deadline(work.collective.timeout))
        except BaseException as caught:
            error = caught
            error = self._give_up(caught, work.text)
            if not isinstance(caught, Exception):
                raise
        finally:
            if not begun and not nested:
                self._calls.release()
            self._calls.finished()
            work.finish(error)

    def _give_up(self, caught: BaseException, text: str) -> BaseException:
        """Reports to the others; returns the error to raise here."""
        self._ending.look()
        if isinstance(caught, PeerLost) and self._ending.cause is not None:  # it reported why
            caught = EndedElsewhere(self._lines.membership.rank, self._ending.cause)
        if isinstance(caught, Error):
            caught = self._lines.membership.or_closed(caught)
        rank, advice = self._lines.membership.rank, self._ending.advice
        cause, error = _diagnosis(caught, text, rank, advice)
        self._ending.declare(cause)
        if self._calls.mine:  # else another thread uses the lines
            self._lines.ring_off(SLICE)
        return error


def _diagnosis(
    caught: BaseException, text: str, rank: int, advice: Advice
) -> tuple[Cause, BaseException]:
    """The cause for the other ranks, and the error for this one."""
    if isinstance(caught, EndedElsewhere):
        reported = caught.cause.error(text, advice)
        if isinstance(reported, Error):
            reported.effect = "some"
        return caught.cause, reported
    if isinstance(caught, Mismatch):
        cause = Cause(MISMATCH, str(caught))
        return cause, cause.error(text, advice)
    if not isinstance(caught, Error):
        failed = f"rank {rank} failed in {text}: {described(caught)}"
        return Cause(OTHER, failed), caught
    kind, remedy = OTHER, ""
    if isinstance(caught, PeerLost):
        kind, remedy = LOST, f"; {advice.lost}"
    elif isinstance(caught, TransferTimeout):
        kind, remedy = LATE, f"; {advice.late}"
    found = f"{caught} (reported by rank {rank} in {text})"
    error = reworded(caught, f"{text}: {caught}{remedy}")
    error.effect = "some"
    return Cause(kind, found), error
