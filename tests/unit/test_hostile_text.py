"""Text and files from outside, damaged at random: settings, entries of a store, recordings. What is wrong is refused
by the error that is promised."""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import zerohop as zh
from click.testing import CliRunner
from zerohop._endpoint.knobs import KNOBS, chosen
from zerohop._endpoint.rails import launcher_local_rank
from zerohop._world.addresses import Addresses
from zerohop._world.entries import Entry
from zerohop._world.launch import launched
from zerohop._world.store import Directory
from zerohop.cli import main
from zerohop.observe.exposure import place_of
from zerohop.observe.recording import merged

SECONDS = 1.0  # of mutations, of each subject
TELLING = [b"\0", b"\xff", b"-1", b"1e999", b"NaN", b"null", b"[]", b"{}", b'"', b"\n", b"9" * 5000]
DEEP = b"[" * 100_000


def damaged(seeds: list[bytes]) -> Iterator[bytes]:
    """Each as it is, then mutations of them until the time is over; they depend on nothing but their number."""
    yield from [*seeds, b"", DEEP, *TELLING]
    rng, end = random.Random(20), time.monotonic() + SECONDS
    while time.monotonic() < end:
        value = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(value) + 1)
            match rng.randrange(5):
                case 0:
                    value[at : at + rng.randrange(8)] = b""
                case 1:
                    value[at:at] = rng.choice(TELLING)
                case 2:
                    value[at:at] = rng.randbytes(rng.randrange(4))
                case 3:
                    value[at : at + 1] = rng.randbytes(1)
                case _:
                    other = rng.choice(seeds)
                    value[at:] = other[rng.randrange(len(other) + 1) :]
        yield bytes(value)


def variables(value: bytes) -> str:
    """What a variable of the environment can hold: any bytes but zeros."""
    return os.fsdecode(value.replace(b"\0", b""))


def check_knobs(value: bytes) -> None:
    text = variables(value)
    for knob in KNOBS:
        assert chosen({}, {knob.variable: text})[knob.name] in knob.allowed


def check_place(value: bytes) -> None:
    place = place_of(variables(value))
    assert place is None or all(0 <= port <= 65535 for port in place.ports)


def check_launched(value: bytes) -> None:
    text = variables(value)
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"]
    for name in names:
        reported = launched({**dict.fromkeys(names, "1"), "WORLD_SIZE": "4", name: text})
        assert reported is None or 0 <= reported.rank < reported.size


def check_entry(value: bytes) -> None:
    entry = Entry.from_bytes(value)
    assert Entry.from_bytes(entry.to_bytes()) == entry
    assert isinstance(entry.who + entry.left, str)
    assert entry.size + entry.pid is not None


TEXTS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "settings": (check_knobs, [b"1", b"0x10", b"4096", b" 7 ", b"0b1"]),
    "metrics": (check_place, [b"local", b"9400", b"9400-9415", b"0.0.0.0:9400", b"[::1]:0"]),
    "launchers": (check_launched, [b"0", b"3", b"localhost", b"29500"]),
    "entries": (check_entry, [Entry(b"address", 4).to_bytes(), b'{"size":1,"pid":"x"}\n']),
}


@pytest.mark.parametrize("name", TEXTS)
def test_damaged_text_is_refused_in_words(name):
    check, seeds = TEXTS[name]
    refused = 0
    for value in damaged(seeds):
        try:
            check(value)
        except (ValueError, TypeError, zh.ProtocolError):
            refused += 1
    assert refused > 10


@pytest.mark.parametrize(
    "head",
    [
        b'{"size":"4"}',
        b'{"size":4,"pid":[]}',
        b'{"size":true}',
        b'{"size":4,"left":7}',
        b"[]",
        DEEP,
    ],
    ids=["size", "pid", "truth", "left", "list", "deep"],
)
def test_an_entry_of_other_types_is_none(head):
    with pytest.raises(zh.ProtocolError, match="same version on all ranks"):
        Entry.from_bytes(head + b"\naddress")


def test_a_damaged_entry_in_a_store_is_refused_in_words(tmp_path):
    store = Directory(tmp_path / "job")
    looking = Addresses(store, "world", 0, 2)
    for value in (DEEP, b"\xff" * 1000, b'{"size":{}}\n', b"{}\n"):
        store.set("zerohop/world/1", value)
        with pytest.raises(zh.ProtocolError):
            looking.wait(1, time.monotonic() + 5)


def test_a_pipe_in_the_place_of_an_entry_has_nobody_wait(tmp_path):
    store = Directory(tmp_path / "job")
    os.mkfifo(tmp_path / "job" / "key")
    with pytest.raises(PermissionError, match="is not a file"):
        store.get("key")


def trace(pid: int = 7) -> bytes:
    about = {"boot": "b", "epoch_minus_clock_ns": 5, "events_dropped": 0, "host": "h"}
    rows = [{"ph": "b", "pid": pid, "tid": 0, "ts": 1.5, "name": "write", "args": {}}]
    return json.dumps({"displayTimeUnit": "ns", "otherData": about, "traceEvents": rows}).encode()


def test_damaged_recordings_are_refused_in_words():
    good = json.loads(trace(8))
    for value in damaged([trace(), trace(1 << 22)]):
        try:
            rows, about = merged([good, json.loads(value)])
        except (ValueError, RecursionError):  # of json.loads()
            continue
        json.dumps([rows, about])


@pytest.mark.parametrize("value", [DEEP, b"", b"\xff\xfe", b"{}", trace() + b"}"])
def test_merge_says_what_is_wrong(tmp_path, value):
    bad, out = tmp_path / "bad.json", tmp_path / "out.json"
    bad.write_bytes(value)
    result = CliRunner().invoke(main, ["merge", str(bad), "-o", str(out)])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert not out.exists()


def test_a_damaged_local_rank_is_refused_in_words(monkeypatch):
    for value in damaged([b"0", b"3"]):
        text = variables(value)[:100_000]  # the kernel takes no more
        monkeypatch.setenv("ZEROHOP_LOCAL_RANK", text)
        with suppress(ValueError):
            launcher_local_rank()
