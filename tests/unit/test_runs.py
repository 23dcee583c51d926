"""Runs in one directory, one after the other, never two at once; and the locks by which they know."""

import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import zerohop as zh
from support.attempt import Attempt
from support.forking import forking
from zerohop._world.addresses import Addresses
from zerohop._world.entries import Entry
from zerohop._world.locks import ByteLocks
from zerohop._world.runs import Lead
from zerohop._world.store import Directory

SIZE = 3


def ranks(path: Path, *numbers: int) -> list[Addresses]:
    """Those ranks of one World, that have joined it."""
    made = [Addresses(Directory(path), "w", number, SIZE) for number in numbers]
    for addresses, number in zip(made, numbers, strict=True):
        addresses.publish(bytes([number]), 1.0)
    return made


def found(addresses: Addresses, rank: int) -> tuple[bytes, Lead]:
    entry, lead = addresses.wait(rank, 0.0)
    return entry.address, lead


THERE, ENDED = Lead(float("inf"), lost=False), Lead(0.0, lost=True)


def change(path: Path, rank: int, **values: str) -> None:
    """What an entry says, as if another process had written it."""
    directory, key = Directory(path), f"zerohop/w/{rank}"
    entry = Entry.from_bytes(directory.get(key))
    directory.set(key, replace(entry, **values).to_bytes())


def test_who_has_ended_is_lost_in_the_same_run_and_awaited_in_the_next(tmp_path):
    first, second = ranks(tmp_path, 0, 1)
    assert found(first, 1) == (b"\1", THERE)
    second.leave()
    assert found(first, 1) == (b"\1", ENDED)
    first.leave()
    [again] = ranks(tmp_path, 0)
    words = rf"that rank has not made its World .*its last one, of process {os.getpid()} on .*, had ended before"
    with pytest.raises(zh.TransferTimeout, match=words):
        found(again, 1)
    [other] = ranks(tmp_path, 1)
    assert found(again, 1) == (b"\1", THERE)
    assert found(other, 0) == (b"\0", THERE)


def test_all_join_at_once(tmp_path):
    for _ in range(5):
        made = [Addresses(Directory(tmp_path), "w", number, 8) for number in range(8)]
        joining = [Attempt(one.publish, b"x", 20.0) for one in made]
        for attempt in joining:
            attempt.value()
        for one in made:
            assert [found(one, number)[1] for number in range(8)].count(THERE) == 7  # not itself
        for one in made:
            one.leave()


def test_a_rank_of_another_host_is_looked_for_where_its_lock_is_not_seen(tmp_path):
    first, second = ranks(tmp_path, 0, 1)
    change(tmp_path, 1, boot="elsewhere")
    assert found(first, 1)[1] == THERE
    second.leave()
    lead = found(first, 1)[1]
    assert lead.seconds > 0
    assert lead.lost
    change(tmp_path, 1, run="another")
    assert not found(first, 1)[1].lost
    with pytest.warns(RuntimeWarning, match="are not seen here.*fresh directory for each run"):
        first.found(1, first.wait(1, 0.0)[0])


def test_a_lock_beside_the_entry_of_an_earlier_run_says_nothing_yet(tmp_path):
    first, _ = ranks(tmp_path, 0, 1)
    change(tmp_path, 1, run="earlier")
    lead = found(first, 1)[1]
    assert lead.seconds > 0
    assert not lead.lost


def test_without_locks_the_dates_decide(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(ByteLocks, "_ask", refuse)
    with pytest.warns(RuntimeWarning, match=r"file locks .* do not exist: No locks available"):
        first, second = ranks(tmp_path, 0, 1)
    assert found(first, 1)[1].lost  # if nobody is there
    os.utime(tmp_path / "zerohop%2Fw%2F1", (1.0, 1.0))
    lead = found(first, 1)[1]
    assert lead.seconds > 0
    assert not lead.lost
    second.leave()


def test_a_crowd_at_the_gate_does_not_hold_up_for_ever(tmp_path):
    gate = Directory(tmp_path).locks("zerohop/w/lock")
    assert gate.take(2**62)
    begin = time.monotonic()
    with pytest.raises(zh.Error, match="other ranks keep joining"):
        ranks(tmp_path, 0)
    assert 0.9 < time.monotonic() - begin < 10
    gate.close()
    ranks(tmp_path, 0)


HOLDER = """
import sys
from zerohop._world.locks import ByteLocks

locks = ByteLocks(sys.argv[1])
assert locks.take(3) and locks.take(1 << 62)
print("here", flush=True)
sys.stdin.read()
"""


def test_a_byte_has_one_holder(tmp_path):
    first, second = ByteLocks(tmp_path / "lock"), ByteLocks(tmp_path / "lock")
    assert first.taken(0, 100) is None
    assert first.take(5)
    assert first.take(5)
    assert second.take(6)
    assert not second.take(5)
    assert (first.taken(0, 100), second.taken(0, 100)) == (6, 5)
    assert first.taken(5, 1) is None  # its own
    assert second.taken(6, 94) is None
    first.release(5)
    assert second.take(5)
    second.close()
    second.close()
    assert first.taken(0, 1 << 62) is None


def test_the_lock_ends_with_the_process(tmp_path):
    locks = ByteLocks(tmp_path / "lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout.readline() == b"here\n"
        assert locks.taken(0, 10) == 3
        assert not locks.take(1 << 62)
        holder.send_signal(signal.SIGKILL)
    assert locks.taken(0, 10) is None
    assert locks.take(1 << 62)


def test_a_forked_child_does_not_hold_on(tmp_path):
    first, second = ByteLocks(tmp_path / "lock"), ByteLocks(tmp_path / "lock")
    assert first.take(0)
    reported, tell = os.pipe()
    asked, ask = os.pipe()
    with forking():
        child = os.fork()
    if child == 0:
        os.close(ask)
        os.write(tell, b"x")
        os.read(asked, 1)  # until the parent has looked
        os._exit(0)
    os.close(asked)
    assert os.read(reported, 1) == b"x"
    held = second.taken(0, 1)
    first.close()
    left = second.taken(0, 1)
    os.close(ask)
    os.waitpid(child, 0)
    os.close(reported)
    os.close(tell)
    assert (held, left) == (0, None)


def test_a_child_waits_for_no_thread_of_its_parent(tmp_path):
    locks = ByteLocks(tmp_path / "lock")
    with locks._lock, forking():  # as another thread's call has it
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # kills the child
            try:
                locks.close()
                os._exit(0)
            finally:
                os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_is_dropped_is_given_up(tmp_path):
    first, second = ByteLocks(tmp_path / "lock"), ByteLocks(tmp_path / "lock")
    assert first.take(0)
    first.write(b"0123")
    assert second.read() == b"0123"
    del first
    assert second.taken(0, 1) is None


def test_what_is_closed_uses_no_file(tmp_path):
    """Its number may be another file's by then."""
    locks = ByteLocks(tmp_path / "lock")
    locks.close()
    for call in (lambda: locks.take(0), lambda: locks.taken(0, 1), locks.read, lambda: locks.owner):
        with pytest.raises(OSError, match="is closed") as caught:
            call()
        assert caught.value.errno == errno.EBADF
