"""Notifications on the own board that follow reads: GASPI's read_notify.

An RDMA read tells its target nothing and its origin by a completion only, so somebody here has to put the
value when that comes: a thread that sleeps until then.
"""

from __future__ import annotations

import itertools
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress

from zerohop import _core
from zerohop.errors import Error

__all__ = ["Landings"]


class Landings:
    """put: puts (slot, value) on the own board. The thread starts at the first read."""

    def __init__(self, put: Callable[[int, int], object]) -> None:
        self._put = put
        self._bell = _core.Bell()
        self._tokens = itertools.count()
        self._waiting: dict[int, tuple[_core.Transfer, int, int]] = {}
        self._stop_out, self._stop_in = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="zerohop landings", daemon=True)
        self._thread.start()

    def notify(self, transfer: _core.Transfer, slot: int, value: int) -> None:
        """Once the transfer has ended well; if it fails never, as its queue's wait() then says."""
        token = next(self._tokens)
        self._waiting[token] = (transfer, slot, value)
        self._bell.watch(transfer, token)

    def close(self) -> None:
        """What lands from now on notifies nobody."""
        os.close(self._stop_in)
        self._thread.join()
        os.close(self._stop_out)

    def _serve(self) -> None:
        bell = self._bell.fileno()
        while True:
            ready, _, _ = select.select([bell, self._stop_out], [], [])
            if self._stop_out in ready:
                return
            for token in self._bell.drain():
                self._land(*self._waiting.pop(token))

    def _land(self, transfer: _core.Transfer, slot: int, value: int) -> None:
        with suppress(Error):  # the queue's wait() raises it
            transfer.wait(0)
            try:
                self._put(slot, value)
            except Error as error:
                _core.report(f"a read has landed, but its notification was not put: {error}")
