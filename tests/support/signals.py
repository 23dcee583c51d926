"""Signals that come while a test waits."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SOON = 0.2  # seconds; by then the wait has begun, and if it has not, the outcome is the same


@contextmanager
def alarm(handler: Callable[[], object]) -> Iterator[None]:
    """Runs `handler` in a signal handler of the main thread, SOON after the block has begun."""
    before = signal.signal(signal.SIGALRM, lambda *_: handler())
    try:
        signal.setitimer(signal.ITIMER_REAL, SOON)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def ctrl_c() -> Iterator[None]:
    timer = threading.Timer(SOON, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.join()
