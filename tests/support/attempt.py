"""A call that may block for ever, made in a thread, so that the test can wait with a deadline."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.patience import LOST_WITHIN, patient

__all__ = ["LOST_WITHIN", "Attempt", "within"]


class Attempt:
    """Starts `call(*args)` in a thread at once; `failure()` and `value()` collect its end."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        self.ended_at = float("nan")  # time.monotonic() of the end
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(call, args, started), daemon=True)
        self._thread.start()
        assert started.wait(patient(10)), "the thread did not start"

    def _run(self, call: Callable[..., Any], args: tuple[Any, ...], started: Any) -> None:
        started.set()
        try:
            self._value = call(*args)
        except BaseException as error:  # noqa: BLE001  handed over by failure() or value()
            self._error = error
        self.ended_at = time.monotonic()

    @property
    def pending(self) -> bool:
        return self._thread.is_alive()

    def stays_pending(self, seconds: float) -> None:
        """Waits so long, on any machine, and fails if the call has ended by then."""
        self._thread.join(seconds)
        assert self._thread.is_alive(), f"the call ended within {seconds} s"

    def _join(self, timeout: float) -> None:
        timeout = patient(timeout)
        self._thread.join(timeout)
        assert not self._thread.is_alive(), f"still blocked after {timeout} s"

    def value(self, timeout: float = 20.0) -> Any:
        self._join(timeout)
        if self._error is not None:
            raise self._error
        return self._value

    def failure(self, kind: type[BaseException], timeout: float = 20.0) -> BaseException:
        """The exception that ended the call; fails if there is none, or another one."""
        self._join(timeout)
        if self._error is None:
            pytest.fail(f"returned {self._value!r} instead of raising {kind.__name__}")
        if not isinstance(self._error, kind):
            raise self._error
        return self._error


@contextmanager
def within(seconds: float, at_least: float = 0.0) -> Iterator[None]:
    """Fails when the block takes longer than `seconds` (or less than `at_least`)."""
    seconds = patient(seconds)
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    assert took < seconds, f"took {took:.2f} s, may take {seconds} s"
    assert took >= at_least, f"took only {took:.3f} s, must wait {at_least} s"
