"""The records that the loggers of zerohop got, for tests."""

import logging
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from zerohop.observe import logs

PATIENCE = 20.0  # seconds


class Kept(logging.Handler):
    """Hands records over, with the thread that handled them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: queue.SimpleQueue[tuple[logging.LogRecord, str]] = queue.SimpleQueue()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.put((record, threading.current_thread().name))

    def all_of(self, topic: str) -> list[str]:
        """What was logged up to now."""
        logs.stop()
        logs.start()
        records = [self.records.get()[0] for _ in range(self.records.qsize())]
        return [each.getMessage() for each in records if each.name == f"zerohop.{topic}"]

    def next_of(self, topic: str) -> logging.LogRecord:
        while True:
            record, thread = self.records.get(timeout=PATIENCE)
            assert thread == "zerohop-log"
            if record.name == f"zerohop.{topic}":
                return record


@contextmanager
def keeping() -> Iterator[Kept]:
    """All that is logged meanwhile."""
    handler, logger = Kept(), logging.getLogger("zerohop")
    level = logger.level
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "_END_S", PATIENCE)  # what all_of() does not find was not logged
        logs.stop()  # hands over what was logged before
        logs.start()
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        yield handler
        logger.setLevel(level)
        logger.removeHandler(handler)
