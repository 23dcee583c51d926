"""The keys of one run in a store, and the one step in which many agree."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zerohop as zh
from zerohop._world.shrinking import RunStore
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


def test_runs_of_one_store_have_keys_of_their_own() -> None:
    values: dict[str, bytes] = {}
    first, second = (RunStore(Redis(values), run) for run in ("a", "b"))
    assert first.set_once("k", b"1") == b"1"
    assert second.get("k") is None
    assert second.set_once("k", b"2") == b"2"
    assert first.get("k") == first.set_once("k", b"3") == b"1"


def test_all_who_set_a_file_at_once_agree(tmp_path: Path) -> None:
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


def test_a_file_system_without_links_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(zh.Error, match="without hard links"):
        RunStore(Directory(tmp_path / "store"), "").set_once("k", b"v")
    assert not list((tmp_path / "store").iterdir())


@pytest.mark.parametrize("name", ["HashStore", "FileStore"])
def test_stores_of_torch_agree(name: str, tmp_path: Path) -> None:
    distributed = pytest.importorskip("torch.distributed")
    of_torch = getattr(distributed, name)
    store = of_torch() if name == "HashStore" else of_torch(str(tmp_path / "file"), 1)
    first, second = RunStore(store, "a"), RunStore(store, "a")
    assert first.set_once("k", b"[1]") == second.set_once("k", b"[2]") == second.get("k") == b"[1]"


def test_a_store_that_cannot_is_refused() -> None:
    store = RunStore(Kept({}), "")
    store.set("k", b"v")
    with pytest.raises(zh.Error, match=r"neither compare_set.* give shrink\(store=\)"):
        store.set_once("k", b"w")
    assert store.get("k") == b"v"


def test_a_store_that_has_ended_is_told_of() -> None:
    store = RunStore(Kept({}, OSError("gone")), "")
    for call in (lambda: store.get("k"), lambda: store.set("k", b"v")):
        with pytest.raises(
            zh.Error, match=r"does not work \(OSError: gone\): give shrink\(store=\)"
        ):
            call()
