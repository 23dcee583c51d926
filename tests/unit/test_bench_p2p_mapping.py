"""What `zerohop bench p2p` says that mapping costs, of a peer whose writes take what the test says."""

from types import SimpleNamespace
from typing import Any

import pytest
import zerohop as zh
from zerohop.bench.p2p import mapping
from zerohop.bench.p2p.mapping import Mappings
from zerohop.bench.p2p.plan import MAPPINGS
from zerohop.observe.stats import median_error

KNOWN_S, FIRST_S = 1.0, 3.0


class SlowPeer:
    """Takes FIRST_S for the first write to each array, and `more` than KNOWN_S by a new RemoteMemory."""

    def __init__(self, arrays: list[zh.RemoteMemory], more: float) -> None:
        self.now = 0.0
        self.more = more
        self.unmapped = [range(a.address, a.address + a.nbytes) for a in arrays]
        self.seen: dict[int, Any] = {}  # by id, and kept: no other gets it

    def write(self, source: Any, target: zh.RemoteMemory) -> Any:
        before = len(self.unmapped)
        self.unmapped = [array for array in self.unmapped if target.address not in array]
        if len(self.unmapped) < before:
            self.now += FIRST_S
        else:
            self.now += KNOWN_S + (0.0 if id(target) in self.seen else self.more)
        self.seen[id(target)] = target
        return SimpleNamespace(wait=lambda: None)


class Link:
    """Of rank 0, as long as rank 1 gives what is in `remotes`, one after the other."""

    rank = 0

    def __init__(self, remotes: list[Any]) -> None:
        self.answers = [answer for remote in remotes for answer in (None, remote, None)]

    def exchange(self, value: Any) -> list[Any]:
        return [value, self.answers.pop(0)]


@pytest.mark.parametrize("more", [0.25, -0.25])
def test_first_and_cached_mappings_are_told_as_they_were_measured(more, monkeypatch) -> None:
    with zh.Endpoint("soft0") as endpoint:
        arrays = [endpoint.empty(4096) for _ in range(MAPPINGS)]
        remotes = [array.remote for array in arrays]
        peer, link = SlowPeer(remotes, more), Link(remotes)
        monkeypatch.setattr(mapping, "time", SimpleNamespace(perf_counter=lambda: peer.now))
        side: Any = SimpleNamespace(first=True, peer=peer, arena=arrays[0])
        found = Mappings(link, side, endpoint.empty).measure(4096)
    assert link.answers == []
    assert found == {
        "first": pytest.approx(FIRST_S - KNOWN_S),
        "cached": pytest.approx(more),
        "cached_error": pytest.approx(0.0),
    }


def test_rank_1_makes_the_memory_and_measures_nothing() -> None:
    made: list[Any] = []

    def make(nbytes: int) -> Any:
        memory = SimpleNamespace(remote=nbytes, closed=False)
        memory.close = lambda: setattr(memory, "closed", True)
        made.append(memory)
        return memory

    link: Any = SimpleNamespace(rank=1, exchange=lambda value: [None, value])
    side: Any = SimpleNamespace(first=False)
    assert Mappings(link, side, make).measure(64) == {}
    assert [memory.closed for memory in made] == [True] * MAPPINGS


def test_the_error_of_a_median_shrinks_with_the_samples_and_ignores_outliers() -> None:
    few = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert median_error(few) == pytest.approx(1.4826 * 1.2533 / 5**0.5, rel=1e-3)
    assert median_error(few * 100) == pytest.approx(median_error(few) / 10)
    assert median_error([*few[:4], 1e9]) == median_error(few)
