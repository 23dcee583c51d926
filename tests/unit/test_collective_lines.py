"""What a rank looks at while it waits in a collective: nothing that has come is overheard, and useless waits end."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest
import zerohop as zh
from zerohop._world.deadline import Deadline
from zerohop._world.ending import Told
from zerohop.collectives import lines as module
from zerohop.collectives.lines import Lines

SIZE = 4


class FakeCore:
    """notes: ranks that have sent a message, as listen() comes to know; -rank: that one has rung off."""

    INBOX = EAGER = 1

    def __init__(self, *_):
        self.notes = deque()
        self.news, self.ended = set(), []

    def add(self, rank, peer, inbox):
        pass

    def listen(self):
        if not self.notes:
            return False
        rank = self.notes.popleft()
        if rank < 0:
            self.ended.append(-rank)
        else:
            self.news.add(rank)
        return True

    def has_news(self, rank):
        return rank in self.news

    def over(self):
        return self.ended


class FakeMembership:
    def __init__(self):
        self.rank, self.size, self.name = 0, SIZE, "w"
        self.history = SimpleNamespace(difference=lambda rank, peer: None)
        self.endpoint = SimpleNamespace(
            empty=lambda nbytes: bytearray(nbytes), share=lambda name, memory: None
        )
        self.peers = {}

    def check_open(self):
        pass

    def lost(self, rank):
        return f"rank {rank} is lost"

    def peer(self, rank, bound):
        return self.peers.setdefault(rank, SimpleNamespace(alive=True))


@pytest.fixture
def membership():
    return FakeMembership()


@pytest.fixture
def asked():
    """Cause by rank, of those that have given up."""
    return {}


@pytest.fixture
def lines(membership, asked, monkeypatch):
    monkeypatch.setattr(module, "_core", SimpleNamespace(Lines=FakeCore))
    ending = SimpleNamespace(
        told_by=lambda peer: asked.get(id(peer)),
        difference=lambda rank, peer: None,
        said_by=lambda rank: None,
        check=lambda: None,
    )
    made = Lines(membership, range(100, 100 + 2 * SIZE), ending)
    for rank in (1, 2, 3):
        made.connect(rank, Deadline(1), all_needed=True)
    return made


def test_what_has_come_ends_the_wait(lines):
    lines.core.notes.append(2)
    assert lines.hear([1, 2], True, Deadline(0))
    lines.core.news.clear()
    assert not lines.hear([1, 2], True, Deadline(1))
    with pytest.raises(zh.TransferTimeout, match="ranks 1, 2 have not made the matching call"):
        lines.hear([1, 2], True, Deadline(0))


def test_failure_reports_count(membership, lines):
    membership.peers[1].alive = False
    lines.core.notes += [3, 1]
    assert lines.hear([1, 2], True, Deadline(1))
    assert lines.core.news == {1, 3}
    lines.core.news.clear()
    with pytest.raises(zh.PeerLost, match="rank 1 is lost"):
        lines.hear([1, 2], True, Deadline(1))


def test_room_of_a_lost_rank_is_not_waited_for(membership, lines):
    membership.peers[1].alive = False
    lines.core.news.add(1)
    with pytest.raises(zh.PeerLost, match="rank 1 is lost"):
        lines.wait_on(1, Deadline(1), [], True)


@pytest.mark.parametrize("all_needed", [True, False])
def test_who_rings_off_ends_what_concerns_it(membership, lines, asked, all_needed):
    """Of a call of all any rank; of two ranks' only the other one."""
    asked[id(membership.peers[3])] = ("lost", "rank 2 is lost")
    lines.core.notes.append(-3)
    if all_needed:
        with pytest.raises(Told) as told:
            lines.hear([1], all_needed, Deadline(1))
        assert (told.value.rank, told.value.cause) == (3, ("lost", "rank 2 is lost"))
    else:
        assert not lines.hear([1], all_needed, Deadline(1))


@pytest.mark.parametrize("refuses", [True, False])
def test_who_is_lost_right_behind_the_look_up_is_lost(membership, lines, refuses):
    def route(near, far):
        if refuses:
            raise zh.PeerLost("it left; connect again")
        return SimpleNamespace(settings={})  # of queue pairs that are closed

    membership.peers[1].lookup = lambda name, seconds: "inbox"
    membership.peers[1].route = route
    with pytest.raises(zh.PeerLost, match=r"^rank 1 is lost$"):
        lines.meet(1, Deadline(1), [], True)
