"""A queue of a Segment: room, failures and waits, on transfers that end when the test says so."""

import threading
import time
from typing import Any

import pytest
import zerohop as zh
from zerohop._world.queues import Queue
from zerohop.errors import reworded


class Scripted:
    """A Transfer that ends with end(): well, or with an error."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._error: zh.Error | None = None

    def end(self, error: zh.Error | None = None) -> None:
        self._error = error
        self._ended.set()

    @property
    def done(self) -> bool:
        return self._ended.is_set()

    def wait(self, timeout: float) -> None:
        if not self._ended.wait(timeout):
            raise zh.TransferTimeout("not yet")
        if self._error is not None:
            raise self._error


def named(error: zh.Error, rank: int, what: str) -> zh.Error:
    return reworded(error, f"{what}rank {rank}: {error}")


def filled(count: int, depth: int = 1024) -> tuple[Queue, list[Any]]:
    queue, transfers = Queue("queue 3", named, depth), [Scripted() for _ in range(count)]
    for rank, transfer in enumerate(transfers):
        queue.add(rank, transfer)
    return queue, transfers


def test_the_first_failure_is_raised_once_when_all_have_ended():
    queue, transfers = filled(4)
    transfers[0].end()
    transfers[1].end(zh.VerbsError("broke", 12, "some"))
    transfers[2].end(zh.PeerLost("gone"))
    with pytest.raises(zh.TransferTimeout):
        queue.wait(0)
    transfers[3].end()
    with pytest.raises(zh.VerbsError, match="queue 3, rank 1: broke") as error:
        queue.wait(0)
    assert (error.value.code, error.value.effect) == (12, "some")
    queue.wait(0)


def test_a_full_queue_waits_for_its_oldest_operation():
    queue, transfers = filled(3, depth=3)
    begin = time.monotonic()
    with pytest.raises(zh.TransferTimeout, match="rank 0"):
        queue.make_room(0.1)
    assert time.monotonic() - begin >= 0.1
    transfers[1].end()  # it is not the oldest
    with pytest.raises(zh.TransferTimeout):
        queue.make_room(0)
    threading.Timer(0.1, transfers[0].end, [zh.PeerLost("gone")]).start()
    queue.make_room(10)
    assert len(queue) == 1  # what has ended makes room, too
    transfers[2].end()
    with pytest.raises(zh.PeerLost, match="rank 0: gone"):  # for wait() to tell
        queue.wait(0)


def test_a_failure_keeps_all_that_it_says():
    queue, transfers = filled(1)
    transfers[0].end(zh.IntegrityError("damaged", 3, "all", offset=1 << 20, nbytes=77))
    with pytest.raises(zh.IntegrityError, match=r"^queue 3, rank 0: damaged$") as caught:
        queue.wait(1)
    error = caught.value
    assert (error.code, error.effect, error.offset, error.nbytes) == (3, "all", 1 << 20, 77)
    timeout = reworded(zh.TransferTimeout("late", effect="all"), "too late")
    assert (str(timeout), timeout.effect) == ("too late", "all")
