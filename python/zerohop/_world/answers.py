"""Calls of PyTorch's stores, bounded: its TCPStore waits without end for a server that is stopped or out of reach."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from zerohop._world.store import Store, is_of_torch

__all__ = ["ANSWER", "Answers"]

ANSWER = 5.0  # seconds for a call that has nothing to wait for
_T = TypeVar("_T")


class Answers:
    """Of one store; calls of others than PyTorch's are made as they are. Any thread."""

    def __init__(self, store: Store) -> None:
        self._bounded = is_of_torch(store)
        self._late: Future[Any] | None = None

    def of(self, call: Callable[[], _T], seconds: float = ANSWER) -> _T:
        """What the call returns or raises. Raises TimeoutError: it goes on, and until it ends no other one begins.

        So what it writes late does not replace what a later call has written.
        """
        if not self._bounded:
            return call()
        if self._late is not None and not self._late.done():
            raise TimeoutError("an earlier call has had no answer yet")
        answer: Future[_T] = Future()
        threading.Thread(target=_make, args=(call, answer), daemon=True).start()
        if not wait([answer], seconds).done:
            self._late = answer
            raise TimeoutError(f"no answer in {seconds:.1f} s")
        return answer.result()


def _make(call: Callable[[], _T], answer: Future[_T]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:  # noqa: BLE001  raised to whoever waits
        answer.set_exception(error)
