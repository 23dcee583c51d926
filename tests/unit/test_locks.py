"""Locks on bytes of a file: one holder each, gone with it."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.forking import forking
from zerohop._world.locks import ByteLocks

HOLDER = """
import sys
from zerohop._world.locks import ByteLocks

locks = ByteLocks(sys.argv[1])
assert locks.take(3) and locks.take(1 << 62)
print("here", flush=True)
sys.stdin.read()
"""


def test_a_byte_has_one_holder(tmp_path: Path) -> None:
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


def test_the_lock_ends_with_the_process(tmp_path: Path) -> None:
    locks = ByteLocks(tmp_path / "lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"here\n"
        assert locks.taken(0, 10) == 3
        assert not locks.take(1 << 62)
        holder.send_signal(signal.SIGKILL)
    assert locks.taken(0, 10) is None
    assert locks.take(1 << 62)


def test_a_forked_child_does_not_hold_on(tmp_path: Path) -> None:
    first, second = ByteLocks(tmp_path / "lock"), ByteLocks(tmp_path / "lock")
    assert first.take(0)
    told, tell = os.pipe()
    asked, ask = os.pipe()
    with forking():
        child = os.fork()
    if child == 0:
        os.close(ask)
        os.write(tell, b"x")
        os.read(asked, 1)  # until the parent has looked
        os._exit(0)
    os.close(asked)
    assert os.read(told, 1) == b"x"
    held = second.taken(0, 1)
    first.close()
    left = second.taken(0, 1)
    os.close(ask)
    os.waitpid(child, 0)
    os.close(told)
    os.close(tell)
    assert (held, left) == (0, None)


def test_a_child_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
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


def test_what_is_dropped_is_given_up(tmp_path: Path) -> None:
    first, second = ByteLocks(tmp_path / "lock"), ByteLocks(tmp_path / "lock")
    assert first.take(0)
    first.write(b"0123")
    assert second.read() == b"0123"
    del first
    assert second.taken(0, 1) is None


def test_what_is_closed_uses_no_file(tmp_path: Path) -> None:
    """Its number may be another file's by then."""
    locks = ByteLocks(tmp_path / "lock")
    locks.close()
    for call in (lambda: locks.take(0), lambda: locks.taken(0, 1), locks.read, lambda: locks.owner):
        with pytest.raises(OSError, match="is closed") as caught:
            call()
        assert caught.value.errno == errno.EBADF
