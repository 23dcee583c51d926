"""What the log is told, by which loggers, and that handlers run in a thread of their own."""

from __future__ import annotations

import logging
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import zerohop as zh

PATIENCE = 20.0  # seconds


class Kept(logging.Handler):
    """Hands records over, with the thread that handled them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: queue.SimpleQueue[tuple[logging.LogRecord, str]] = queue.SimpleQueue()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.put((record, threading.current_thread().name))

    def next_of(self, topic: str) -> logging.LogRecord:
        while True:
            record, thread = self.records.get(timeout=PATIENCE)
            assert thread == "zerohop-log"
            if record.name == f"zerohop.{topic}":
                return record


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler, logger = Kept(), logging.getLogger("zerohop")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.setLevel(level)
    logger.removeHandler(handler)


def test_connections_and_routes(kept: Kept) -> None:
    with zh.Endpoint("soft0", name="log a", p2p=False) as ep:
        with zh.Endpoint("soft0", name="log b", p2p=False) as other:
            peer = ep.connect(other.address)
            made = [kept.next_of("connection") for _ in range(2)]
            assert {record.levelno for record in made} == {logging.INFO}
            assert any("'log a' is connected to peer 'log b'" in r.getMessage() for r in made)
            target = other.empty(8)
            for _ in range(3):
                peer.write(np.ones(8, "u1"), target.remote).wait()
            route = kept.next_of("route")
            assert route.levelno == logging.DEBUG
            assert (
                "transfers with peer 'log b' take host (soft0): both arrays" in route.getMessage()
            )
        ended = [kept.next_of("connection") for _ in range(2)]
        assert {record.levelno for record in ended} == {logging.INFO}
        assert all("no longer connected" in record.getMessage() for record in ended)
    assert kept.records.empty()  # nothing twice


def test_a_slower_route_is_a_warning_once_for_each_cause(kept: Kept) -> None:
    with zh.Endpoint("soft0", name="log c") as ep, zh.Endpoint("soft0", name="log d") as other:
        peer = ep.connect(other.address)
        target = other.empty(8)
        remote = target.remote
        target.close()
        for _ in range(3):
            with pytest.raises(zh.VerbsError):
                peer.write(np.ones(8, "u1"), remote).wait()
        told = [kept.next_of("route") for _ in range(2)]
        [fall] = [record for record in told if record.levelno == logging.WARNING]
        assert "peer 'log d' is left to a device instead of p2p, because" in fall.getMessage()
        assert "closed that memory" in fall.getMessage()
    for _ in range(2):  # those of its end
        kept.next_of("connection")
    assert kept.records.empty()


def test_a_peer_that_is_killed_is_a_warning(kept: Kept) -> None:
    code = """
import sys, zerohop as zh
ep = zh.Endpoint("soft0", name="victim")
print(ep.address.hex(), flush=True)
sys.stdin.read()
"""
    with (
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as victim,
        zh.Endpoint("soft0", name="log e") as ep,
    ):
        assert victim.stdout is not None
        ep.connect(bytes.fromhex(victim.stdout.readline()))
        assert kept.next_of("connection").levelno == logging.INFO
        victim.kill()
        lost = kept.next_of("connection")
        assert lost.levelno == logging.WARNING
        assert "'log e' is no longer connected to peer 'victim'" in lost.getMessage()


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stderr


EXCHANGE = """
import zerohop as zh
a, b = zh.Endpoint("soft0", name="a"), zh.Endpoint("soft0", name="b")
a.connect(b.address)
"""


def test_nothing_is_printed_where_nobody_asked_for_a_log() -> None:
    assert run(EXCHANGE) == ""


def test_the_last_words_are_logged_when_the_process_ends() -> None:
    log = run("import logging; logging.basicConfig(level=logging.INFO)\n" + EXCHANGE)
    assert log.count("is connected to peer") == 2
    assert log.count("is no longer connected to peer") == 2


def test_a_child_of_fork_logs_by_itself() -> None:
    child = """
import os
pid = os.fork()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
else:
    c, d = zh.Endpoint("soft0", name="c"), zh.Endpoint("soft0", name="d")
    c.connect(d.address)
"""
    log = run("import logging; logging.basicConfig(level=logging.INFO)\n" + EXCHANGE + child)
    assert log.count("'c' is connected to peer 'd'") == 1
    assert log.count("'a' is connected to peer 'b'") == 1
