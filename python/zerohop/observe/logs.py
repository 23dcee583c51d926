"""Passes the core's messages about connections and routes to the loggers `zerohop.*`.

The core's threads only append to a list, and a Python thread passes the messages to the loggers, so no handler
ever runs in a thread that posts transfers.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from zerohop import _core

_END_S = 2.0  # for the handlers to process the last messages

logging.getLogger("zerohop").addHandler(logging.NullHandler())


class _Clerk:
    """The thread, of one process."""

    def __init__(self) -> None:
        self._bell = os.eventfd(0, os.EFD_CLOEXEC)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._work, name="zerohop-log", daemon=True)
        self._thread.start()
        _core.send_logs(self._bell)

    def _work(self) -> None:
        while not self._ends.is_set():
            with suppress(InterruptedError):
                os.eventfd_read(self._bell)
            _hand_over()

    def end(self) -> None:
        self._ends.set()
        try:
            os.eventfd_write(self._bell, 1)
            self._thread.join(_END_S)
            if not self._thread.is_alive():  # else it hangs in a handler
                _hand_over()
        finally:
            _core.send_logs(-1)
            if not self._thread.is_alive():
                os.close(self._bell)

    def forget(self) -> None:
        """Called in a forked child, which has no such thread."""
        _core.forget_logs()
        os.close(self._bell)


_lock = threading.Lock()  # protects the following
_clerk: _Clerk | None = None
_shuts_handlers = False


def start() -> None:
    """Starts passing on messages. A second call does nothing."""
    global _clerk
    with _lock:
        if _clerk is None:
            _clerk = _Clerk()


def stop() -> None:
    """Passes on the messages so far, and stops."""
    global _clerk
    with _lock:
        clerk, _clerk = _clerk, None
    if clerk is not None:
        clerk.end()
    if _shuts_handlers:
        logging.shutdown()


def outlive_endpoints() -> None:
    """Makes stop() shut down the handlers, instead of logging's exit handler.

    For programs that import logging after zerohop: messages of Endpoints closed at exit would come too late.
    """
    global _shuts_handlers
    atexit.unregister(logging.shutdown)
    _shuts_handlers = True


def _hand_over() -> None:
    sentences, dropped = (), 0
    with _reported():  # this thread continues after any error
        sentences, dropped = _core.take_logs()
    for level, topic, sentence in sentences:
        with _reported():
            logging.getLogger(f"zerohop.{topic}").log(level, "%s", sentence)
    if dropped:
        with _reported():
            logging.getLogger("zerohop").warning("%d log messages were dropped", dropped)


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except Exception:  # noqa: BLE001  mostly a handler's: report it like any thread's, and continue
        threading.excepthook(
            threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
        )


def _after_fork() -> None:
    global _clerk, _lock
    _lock = threading.Lock()
    clerk, _clerk = _clerk, None
    if clerk is not None:
        clerk.forget()


os.register_at_fork(after_in_child=_after_fork)
