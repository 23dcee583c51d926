"""Who goes on, as one of the survivors decides it."""

import json
from typing import Any

import pytest
from zerohop._world import shrinking
from zerohop._world.deadline import Deadline
from zerohop._world.shrinking import RunStore, Survivors


class Membership:
    """Rank 0 of 3; it learns that a rank has died after so many questions whether that one lives."""

    name, rank, size = "world", 0, 3

    def __init__(self, dies_after: int) -> None:
        self.questions, self.dies_after = 0, dies_after

    def lost_ranks(self) -> list[int]:
        return [1] if self.questions > self.dies_after else []

    def lives(self, rank: int, deadline: Deadline) -> bool:
        self.questions += rank == 1
        return rank not in self.lost_ranks()

    def connected(self) -> list[int]:
        return [1, 2]


class Store(dict[str, bytes]):
    def set(self, key: str, value: bytes) -> None:
        self[key] = value

    def setnx(self, key: str, value: bytes) -> None:
        self.setdefault(key, value)


def agree(dies_after: int) -> list[int]:
    """Rank 1 has come and died; rank 2 has lost it already."""
    notes: dict[int, list[int]] = {1: [], 2: [1]}
    store = Store({f"zerohop/world/shrink/{r}": json.dumps(n).encode() for r, n in notes.items()})
    membership: Any = Membership(dies_after)
    return Survivors(membership, RunStore(store, "")).agree(Deadline(20.0))


def test_a_death_that_others_have_seen_first_costs_nobody_its_place() -> None:
    assert agree(dies_after=3) == [0, 2]


def test_of_two_that_live_and_have_lost_each_other_the_lower_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shrinking, "_LOST", 0.3)
    assert agree(dies_after=10**9) == [0, 1]
