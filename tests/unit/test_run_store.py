"""The keys of one run in a store, the one step in which many agree, and who goes on."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import zerohop as zh
from zerohop._world import shrinking
from zerohop._world.deadline import Deadline
from zerohop._world.shrinking import RunStore, Survivors
from zerohop._world.store import Directory

RANKS = 4
ROUNDS = 50


class Kept:
    """A store of two methods. wrong: what every call raises."""

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


class Redis(Kept):
    """As redis-py has it."""

    def setnx(self, key: str, value: bytes) -> bool:
        return self.values.setdefault(key, value) is value


def test_runs_of_one_store_have_keys_of_their_own():
    values: dict[str, bytes] = {}
    first, second = (RunStore(Redis(values), run) for run in ("a", "b"))
    assert first.set_once("k", b"1") == b"1"
    assert second.get("k") is None
    assert second.set_once("k", b"2") == b"2"
    assert first.get("k") == first.set_once("k", b"3") == b"1"


def test_all_who_set_a_file_at_once_agree(tmp_path):
    path = tmp_path / "store"
    start = threading.Barrier(RANKS)

    def propose(rank: int) -> list[bytes]:
        store = RunStore(Directory(path), "")
        start.wait()
        return [store.set_once(f"k{number}", b"%d" % rank) for number in range(ROUNDS)]

    with ThreadPoolExecutor(RANKS) as pool:
        found = list(pool.map(propose, range(RANKS)))
    assert all(each == found[0] for each in found)
    assert sorted(file.name for file in path.iterdir()) == sorted(f"k{n}" for n in range(ROUNDS))


def test_a_file_system_without_links_is_named(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(zh.Error, match="without hard links"):
        RunStore(Directory(tmp_path / "store"), "").set_once("k", b"v")
    assert not list((tmp_path / "store").iterdir())


@pytest.mark.parametrize("name", ["HashStore", "FileStore"])
def test_stores_of_torch_agree(name, tmp_path):
    distributed = pytest.importorskip("torch.distributed")
    of_torch = getattr(distributed, name)
    store = of_torch() if name == "HashStore" else of_torch(str(tmp_path / "file"), 1)
    first, second = RunStore(store, "a"), RunStore(store, "a")
    assert first.set_once("k", b"[1]") == second.set_once("k", b"[2]") == second.get("k") == b"[1]"


def test_a_store_that_cannot_is_refused():
    store = RunStore(Kept({}), "")
    store.set("k", b"v")
    with pytest.raises(zh.Error, match=r"neither compare_set.* give shrink\(store=\)"):
        store.set_once("k", b"w")
    assert store.get("k") == b"v"


def test_a_store_that_has_ended_is_reported():
    store = RunStore(Kept({}, OSError("gone")), "")
    for call in (lambda: store.get("k"), lambda: store.set("k", b"v")):
        with pytest.raises(
            zh.Error, match=r"does not work \(OSError: gone\): give shrink\(store=\)"
        ):
            call()


class Membership:
    """Rank 0 of 3; it learns that a rank has died after so many questions whether that one lives."""

    name, key, rank, size = "world", "world", 0, 3

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


def test_a_death_that_others_have_seen_first_costs_nobody_its_place():
    assert agree(dies_after=3) == [0, 2]


def test_of_two_that_live_and_have_lost_each_other_the_lower_goes_on(monkeypatch):
    monkeypatch.setattr(shrinking, "_LOST", 0.3)
    assert agree(dies_after=10**9) == [0, 1]
