"""Disk Paxos over a store: whatever the order of the ranks' steps, and whoever stops, no two decide differently."""

from __future__ import annotations

import random
import threading

import pytest
import zerohop as zh
from support.patience import patient
from zerohop.agreement import Agreement, Shelf

RANKS = 3


class Stepped:
    """A store in which one step of one rank happens at a time, whose it is told."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.turns = [threading.Semaphore(0) for _ in range(RANKS)]
        self.waits = [threading.Semaphore(0) for _ in range(RANKS)]  # released at each step's begin
        self.mine = threading.local()

    def step(self) -> None:
        self.waits[self.mine.rank].release()
        assert self.turns[self.mine.rank].acquire(timeout=patient(20))

    def set(self, key: str, value: bytes) -> None:
        self.step()
        self.values[key] = value

    def get(self, key: str) -> bytes | None:
        self.step()
        return self.values.get(key)


class Proposer:
    """A rank that proposes its own number until it has decided."""

    def __init__(self, store: Stepped, rank: int) -> None:
        self.store, self.rank = store, rank
        self.decided: tuple[int, ...] | None = None
        self.done = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        self.store.mine.rank = self.rank
        agreement = Agreement(Shelf(self.store, ""), "k", self.rank, RANKS)
        while self.decided is None:
            self.decided = agreement.propose((self.rank,))
        self.done = True
        self.store.waits[self.rank].release()

    def go(self, steps: int) -> None:
        for _ in range(steps):
            if not self.done:
                self.store.turns[self.rank].release()
                assert self.store.waits[self.rank].acquire(timeout=patient(20))


@pytest.mark.parametrize("seed", range(60))
def test_no_two_decide_differently(seed: int) -> None:
    chance, store = random.Random(seed), Stepped()
    proposers = [Proposer(store, rank) for rank in range(RANKS)]
    for one in proposers:
        assert store.waits[one.rank].acquire(timeout=patient(20))
    for _ in range(chance.randrange(40)):
        chance.choice(proposers).go(chance.randrange(1, 8))
    for one in chance.sample(proposers, RANKS):  # each stops for ever before the next goes on alone
        one.go(chance.choice([3, 1000]))
    chance.choice(proposers).go(1000)
    values = {one.decided for one in proposers if one.done}
    assert len(values) == 1, f"seed {seed}: {values}"
    for one in proposers:
        one.go(1000)
    assert {one.decided for one in proposers} == values
    assert Agreement(Shelf(Told(store.values), ""), "k", 0, RANKS).decided() in values


class Told:
    """A store without turns. wrong: what every call raises."""

    def __init__(self, values: dict[str, bytes], wrong: Exception | None = None) -> None:
        self.values, self.wrong = values, wrong

    def set(self, key: str, value: bytes) -> None:
        if self.wrong is not None:
            raise self.wrong
        self.values[key] = value

    def get(self, key: str) -> bytes:
        if self.wrong is not None:
            raise self.wrong
        return self.values[key]


def test_runs_of_one_store_have_keys_of_their_own() -> None:
    values: dict[str, bytes] = {}
    first, second = (Agreement(Shelf(Told(values), run), "k", 0, 1) for run in ("a", "b"))
    assert first.propose((1,)) == (1,)
    assert second.decided() is None
    assert second.propose((2,)) == (2,)
    assert first.decided() == first.propose((3,)) == (1,)


def test_a_store_that_has_ended_is_told_of() -> None:
    shelf = Shelf(Told({}, OSError("gone")), "")
    for call in (lambda: shelf.get("k"), lambda: shelf.set("k", b"v")):
        with pytest.raises(
            zh.Error, match=r"does not serve any more \(OSError: gone\): give shrink\(store=\)"
        ):
            call()


def test_what_is_no_json_counts_as_nothing() -> None:
    shelf = Shelf(Told({"k": b"\xff", "l": b"[1"}), "")
    assert shelf.get_json("k") is shelf.get_json("l") is shelf.get_json("m") is None
