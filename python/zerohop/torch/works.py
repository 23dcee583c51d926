"""The results of calls of torch.distributed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from zerohop import _core
from zerohop._world.deadline import Deadline
from zerohop.collectives import Collective
from zerohop.errors import Error, PeerLost, TransferTimeout, reworded
from zerohop.torch.advice import advised
from zerohop.torch.foreign import c10d, torch


class Work(c10d.Work):  # type: ignore[misc]
    """outputs: its output tensors. seconds: bound of a wait without a timeout. Any number of threads may wait."""

    def __init__(self, outputs: Sequence[Any], seconds: float) -> None:
        super().__init__()
        self._outputs, self._seconds = list(outputs), seconds

    def _join(self, seconds: float) -> None:
        """Returns when it is done. Raises its error, and TransferTimeout."""
        raise NotImplementedError

    def is_completed(self) -> bool:
        raise NotImplementedError

    def _about(self) -> str:
        """The call and its state. Never blocks, and changes nothing."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<zerohop.torch {type(self).__name__}: {self._about()}>"

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits until any stream may use the tensors. After TransferTimeout the call continues, and may still write."""
        given = 0.0 if timeout is None else timeout.total_seconds()
        if given > 0:
            self._join(given)
        else:  # C++ passes 0 for no timeout
            self._wait_to_the_end()
        return True

    def _wait_to_the_end(self) -> None:
        self._join(self._seconds)

    def synchronize(self) -> None:
        self.wait()

    def exception(self) -> BaseException | None:
        if self.is_completed():
            try:
                self._join(self._seconds)
            except Exception as error:  # noqa: BLE001 that is what was asked for
                return error
        return None

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def result(self) -> list[Any]:
        return self._outputs

    def get_future(self) -> Any:
        """A future of the outputs. It uses a thread while the work runs, because its callbacks may wait for other works."""
        devices = {tensor.device for tensor in self._outputs if tensor.is_cuda}
        future = torch.futures.Future(devices=list(devices))

        def follow() -> None:
            try:
                self.wait()
            except Exception as error:  # noqa: BLE001 it is in the future
                _Failure(error).end(future)
            else:
                future.set_result(self._outputs)

        if self.is_completed():
            follow()
        else:
            threading.Thread(target=follow, name="zerohop future", daemon=True).start()
        return future


class _Failure:
    """The value of a future that has failed.

    Future.set_exception() makes the exception the value. DDP, in C++, takes the first of the tensors that it finds by
    pickling the value, and crashes if there is none. So pickling this one raises the error.
    """

    def __init__(self, error: Exception) -> None:
        self._error, self._setter = error, threading.get_ident()

    def end(self, future: Any) -> None:
        future._set_unwrap_func(_Failure._raise)
        future.set_result(self)  # pickles it here, if there are tensors of GPUs
        self._setter = 0

    def _raise(self) -> None:
        raise self._error

    def __reduce__(self) -> Any:
        if threading.get_ident() != self._setter:
            self._raise()
        return object, ()


def named(what: str, call: Callable[[], Any]) -> Any:
    """Calls it, and prefixes the messages of its errors with `what`, unless that is empty."""
    if not what:
        return call()
    try:
        return call()
    except Error as error:
        raise reworded(error, f"{what}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def of_message(text: str, call: Callable[[], Any]) -> Any:
    """The same for a send or recv, whose PeerLost then advises what to do."""
    try:
        return named(text, call)
    except PeerLost as error:
        raise advised(error) from None


class CollectiveWork(Work):
    """what: prefix of its messages."""

    def __init__(
        self, collective: Collective, outputs: Sequence[Any], seconds: float, what: str
    ) -> None:
        super().__init__(outputs, seconds)
        self._collective, self._what = collective, what

    def is_completed(self) -> bool:
        return self._collective.done

    def _about(self) -> str:
        return f"{self._what or self._collective.text}, {self._collective.state}"

    def _join(self, seconds: float) -> None:
        named(self._what, lambda: self._collective.wait(seconds))

    def _wait_to_the_end(self) -> None:
        self._collective.join()  # ends by the bounds of earlier calls and its own
        self._join(0.0)


class StreamWork(Work):
    """A call that kernels carry out. Waiting orders the current stream behind it, and does not block the CPU, as with NCCL.

    kept: keeps its inputs until a wait. stream: where it runs; event: its end there, None: that was the current stream. A failure
    is raised by a wait once it is known, by the next call, and reported as a warning.
    """

    def __init__(
        self,
        collective: Collective,
        kept: Any,
        outputs: Sequence[Any],
        seconds: float,
        stream: Any,
        event: Any = None,
    ) -> None:
        super().__init__(outputs, seconds)
        self._collective, self._kept = collective, kept
        self._stream, self._event = stream, event

    def is_completed(self) -> bool:
        return self._collective.done

    def _about(self) -> str:
        return f"{self._collective.text}, {self._collective.state}"

    def _join(self, seconds: float) -> None:
        """With a timeout it does block."""
        self._collective.wait(seconds)
        self._wait_to_the_end()

    def _wait_to_the_end(self) -> None:
        if self._collective.done:
            self._collective.wait()
        if self._event is not None:
            torch.cuda.current_stream(self._stream.device).wait_event(self._event)
        self._kept = None

    def block_current_stream(self) -> None:
        self._wait_to_the_end()

    def get_future(self) -> Any:
        """A future that is done at once: its callbacks and waiters are ordered behind the call, in their streams."""
        future = torch.futures.Future(
            devices=list({tensor.device for tensor in self._outputs if tensor.is_cuda})
        )
        with torch.cuda.stream(self._stream):
            future.set_result(self._outputs)
        return future


class MessageWork(Work):
    """One send to a rank or recv from it.

    text: its name. lost: tells why that rank is lost. expected: bytes to receive; None for a send.
    """

    def __init__(
        self,
        text: str,
        rank: int,
        transfer: _core.Transfer,
        outputs: Sequence[Any],
        seconds: float,
        lost: Callable[[int], PeerLost | None],
        expected: int | None = None,
    ) -> None:
        super().__init__(outputs, seconds)
        self._text, self._rank, self._transfer, self._expected = text, rank, transfer, expected
        self._lost = lost

    def is_completed(self) -> bool:
        return self._transfer.done

    def _about(self) -> str:
        return f"{self._text}, {self._transfer!r}"

    def _join(self, seconds: float) -> None:
        nbytes = of_message(self._text, lambda: self._outcome(seconds))
        if self._expected is not None and nbytes != self._expected:
            raise ValueError(
                f"{self._text}: rank {self._rank} has sent {nbytes} bytes, which are at the beginning of the tensor of {self._expected}: "
                "receive into a tensor of the size that is sent"
            )

    def _outcome(self, seconds: float) -> Any:
        """Like that of the transfer; a rank that leaves the group without its part of it ends the wait."""
        deadline = Deadline(seconds)
        while True:
            try:
                return self._transfer.wait(deadline.slice)
            except TransferTimeout:
                if deadline.passed:
                    missing = "recv" if self._expected is None else "send"
                    raise TransferTimeout(
                        f"rank {self._rank} has not made a matching {missing}, with the same tag, within {seconds:g} s; this call "
                        "goes on: wait again, or give the wait or the group a longer timeout"
                    ) from None
                lost = self._lost(self._rank)
                if lost is not None and not self._transfer.done:
                    raise lost from None

    def source_rank(self) -> int:
        return self._rank

    _source_rank = source_rank


class Works(Work):
    """Several works as one."""

    def __init__(self, works: Sequence[Work], seconds: float) -> None:
        super().__init__([each for work in works for each in work.result()], seconds)
        self._works = works

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def _about(self) -> str:
        return "; ".join(work._about() for work in self._works)

    def _join(self, seconds: float) -> None:
        deadline = Deadline(seconds)
        for work in self._works:
            work._join(deadline.left)

    def _wait_to_the_end(self) -> None:
        for work in self._works:
            work._wait_to_the_end()
