"""The note that a rank is gone, in the seat of another: once, and again only if it has failed."""

import pytest
from zerohop._world.seats import FarSeat
from zerohop.errors import Error, TransferTimeout, VerbsError

REMOTE_ACCESS, RETRIES_EXCEEDED = 10, 12  # ibv_wc_status


class Note:
    """A Transfer. outcomes: of one wait() after the other; None: it has succeeded."""

    done = True  # by the time of a look after wait()

    def __init__(self, outcomes: list[Error | None]) -> None:
        self._outcomes = outcomes

    def wait(self, seconds: float) -> None:
        outcome = self._outcomes.pop(0)
        if outcome is not None:
            raise outcome


class Peer:
    alive = True

    def __init__(self, *notes: list[Error | None]) -> None:
        self.notes = list(notes)

    def write(self, *_: object) -> Note:
        return Note(self.notes.pop(0))


def gone(peer: Peer) -> FarSeat:
    return FarSeat(peer, memoryview(bytes(32)), 0)


def test_a_note_that_arrives_after_a_look_is_not_repeated():
    peer = Peer([TransferTimeout("not yet"), None])
    seat = gone(peer)
    assert not seat.is_over(0.0)
    assert seat.is_over(0.0)  # a second note would find no outcome


def test_a_note_that_failed_is_repeated():
    peer = Peer([VerbsError("", RETRIES_EXCEEDED)], [None])
    seat = gone(peer)
    assert not seat.is_over(0.0)
    assert seat.is_over(0.0)
    assert not peer.notes


@pytest.mark.parametrize("alive", [True, False])
def test_a_closed_seat_is_not_asked_again(alive):
    peer = Peer([VerbsError("", REMOTE_ACCESS)])
    peer.alive = alive
    assert gone(peer).is_over(0.0)


def test_a_lost_peer_needs_no_note():
    peer = Peer([TransferTimeout("not yet")])
    peer.alive = False
    assert gone(peer).is_over(0.0)
