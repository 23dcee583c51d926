"""Waits of collectives: nothing that has come is overheard, whatever is waited for when it comes."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest
import zerohop as zh
from zerohop.collectives import lines as module
from zerohop.collectives.deadline import Deadline
from zerohop.collectives.line import OVER
from zerohop.collectives.lines import Lines
from zerohop.ending import Told

FIRST, SIZE = 100, 4  # of the slots for messages; those for credits are behind
CREDITS = FIRST + SIZE


class FakeLine:
    """Its peer lives; what is heard of it counts as news."""

    def __init__(self, rank, *_):
        self.rank, self.far_is_over, self.room = rank, False, 0
        self.peer = SimpleNamespace(alive=True)
        self.has_news = False

    def heard(self, value):
        self.has_news, self.far_is_over = value != OVER, value == OVER

    def has_room(self, value):
        self.room = value


class FakeRoster:
    """notes: (slot, value), what the board has."""

    def __init__(self):
        self.rank, self.size, self.name = 0, SIZE, "w"
        self.notes = deque()
        self.history = SimpleNamespace(difference=lambda rank, peer: None)
        self.endpoint = SimpleNamespace(empty=lambda nbytes: bytearray(nbytes))

    def check_open(self):
        pass

    def lost(self, rank):
        return f"rank {rank} is lost"

    def peer(self, rank, timeout):
        return SimpleNamespace(alive=True)

    def find_note(self, first, count, seconds, *, reset):
        for note in self.notes:
            if first <= note[0] < first + count:
                self.notes.remove(note)
                return note
        return None


@pytest.fixture
def roster():
    return FakeRoster()


@pytest.fixture
def asked():
    """Cause by rank, of those that have given up."""
    return {}


@pytest.fixture
def lines(roster, asked, monkeypatch):
    monkeypatch.setattr(module, "Line", FakeLine)
    monkeypatch.setattr(module, "Outbox", lambda *_: None)
    ending = SimpleNamespace(
        told_by=lambda peer: asked.get(id(peer)),
        difference=lambda rank, peer: None,
        said_by=lambda rank: None,
        check=lambda: None,
    )
    made = Lines(roster, range(FIRST, FIRST + 2 * SIZE), ending)
    for rank in (1, 2, 3):
        made.to(rank, Deadline(1))
    return made


def test_what_comes_while_room_is_waited_for_is_not_lost(roster, lines):
    lines.begin([1, 2], True)
    roster.notes.append((FIRST + 2, 1))
    line = lines.to(1, Deadline(1))
    lines._watch(line, Deadline(1), 0)  # no credit: it listens to everybody
    assert not roster.notes
    assert lines.hear(Deadline(1)) == 2
    with pytest.raises(zh.TransferTimeout, match="ranks 1, 2 have not come"):
        lines.hear(Deadline(0))


def test_credits_are_told_to_their_line(roster, lines):
    roster.notes.append((CREDITS + 3, 7))
    lines._watch(lines.to(1, Deadline(1)), Deadline(1), 0)
    assert lines.to(3, Deadline(1)).room == 7


def test_last_words_count(roster, lines):
    lines.begin([1, 2], True)
    line = lines.to(1, Deadline(1))
    line.peer.alive = False
    roster.notes += [(FIRST + 3, 1), (FIRST + 1, 1)]
    heard = {lines.hear(Deadline(1)), lines.hear(Deadline(1))}
    assert heard == {1, 3}
    line.has_news = False
    with pytest.raises(zh.PeerLost, match="rank 1 is lost"):
        lines.hear(Deadline(1))


def test_room_of_a_lost_rank_is_not_waited_for(roster, lines):
    line = lines.to(1, Deadline(1))
    line.peer.alive, line.has_news = False, True
    with pytest.raises(zh.PeerLost, match="rank 1 is lost"):
        lines._watch(line, Deadline(1), 0)


@pytest.mark.parametrize("all_needed", [True, False])
def test_who_rings_off_ends_what_concerns_it(roster, lines, asked, all_needed):
    """Of a call of all any rank; of two ranks' only the other one."""
    lines.begin([1], all_needed)
    asked[id(lines.to(3, Deadline(1)).peer)] = ("lost", "rank 2 is lost")
    roster.notes.append((FIRST + 3, OVER))
    assert lines.hear(Deadline(1)) == 3
    if all_needed:
        with pytest.raises(Told) as told:
            lines.hear(Deadline(1))
        assert (told.value.rank, told.value.cause) == (3, ("lost", "rank 2 is lost"))
    else:
        assert lines.hear(Deadline(1)) is None
