"""What is logged, by which loggers; of Transfers that nobody asks for, too."""

import logging
import subprocess
import sys
import threading

import numpy as np
import pytest
import zerohop as zh
from support.kept_logs import PATIENCE, Kept, keeping
from support.link import until
from support.program import run_python
from zerohop import _core
from zerohop.observe import logs


@pytest.fixture
def kept():
    with keeping() as handler:
        yield handler


def test_connections_and_routes(kept):
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


def test_a_slower_route_is_a_warning_once_for_each_cause(kept):
    with zh.Endpoint("soft0", name="log c") as ep, zh.Endpoint("soft0", name="log d") as other:
        peer = ep.connect(other.address)
        target = other.empty(8)
        remote = target.remote
        target.close()
        for _ in range(3):
            with pytest.raises(zh.VerbsError):
                peer.write(np.ones(8, "u1"), remote).wait()
        reported = [kept.next_of("route") for _ in range(2)]
        [fall] = [record for record in reported if record.levelno == logging.WARNING]
        assert "peer 'log d' is left to a device instead of p2p, because" in fall.getMessage()
        assert "closed that memory" in fall.getMessage()
    for _ in range(2):  # those of its end
        kept.next_of("connection")
    assert kept.records.empty()


def test_a_peer_that_is_killed_is_a_warning(kept):
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
        ep.connect(bytes.fromhex(victim.stdout.readline()))
        assert kept.next_of("connection").levelno == logging.INFO
        victim.kill()
        lost = kept.next_of("connection")
        assert lost.levelno == logging.WARNING
        assert "'log e' is no longer connected to peer 'victim'" in lost.getMessage()


def run(code: str) -> str:
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    return done.stderr


EXCHANGE = """
import zerohop as zh
a, b = zh.Endpoint("soft0", name="a"), zh.Endpoint("soft0", name="b")
a.connect(b.address)
"""


def test_nothing_is_printed_where_nobody_asked_for_a_log():
    assert run(EXCHANGE) == ""


def test_misspelt_settings_are_a_warning_once(monkeypatch):
    monkeypatch.setenv("ZEROHOP_TIMOUT", "3")
    monkeypatch.setenv("ZEROHOP_XYZZY", "3")
    monkeypatch.setenv("ZEROHOP_TEST_SLOW", "1")
    first, second = [line for line in run(EXCHANGE).splitlines() if "Warning" in line]
    said = "is not a setting of zerohop and is ignored"
    assert (
        first == f"<string>:3: RuntimeWarning: ZEROHOP_TIMOUT {said}: did you mean ZEROHOP_TIMEOUT?"
    )
    assert second == f"<string>:3: RuntimeWarning: ZEROHOP_XYZZY {said}"


def test_a_child_of_fork_logs_by_itself():
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


class Broken(Kept):
    """Fails at its first record."""

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if self.records.qsize() == 1:
            raise RuntimeError("a handler is broken")


def test_a_handler_that_fails_is_reported_and_loses_no_other_sentence(monkeypatch):
    reported: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(str(args.exc_value)))
    handler, logger = Broken(), logging.getLogger("zerohop.broken")
    logger.addHandler(handler)
    sentences = [(logging.WARNING, "broken", text) for text in ("one", "two")]
    monkeypatch.setattr(_core, "take_logs", lambda: (sentences, 0))
    logs._hand_over()
    logger.removeHandler(handler)
    assert [handler.records.get()[0].getMessage() for _ in range(2)] == ["one", "two"]
    assert reported == ["a handler is broken"]
    monkeypatch.setattr(_core, "take_logs", lambda: b"\xff".decode())
    logs._hand_over()
    assert "invalid start byte" in reported[1]


def test_the_last_words_reach_a_file_of_a_logging_that_is_imported_later(tmp_path):
    path = tmp_path / "log"
    configure = (
        f"import logging; logging.basicConfig(level=20, filename={str(path)!r}, filemode='w')"
    )
    late = "import atexit; atexit.register(lambda: print(b.closed))"
    done = run_python("-c", f"import zerohop as zh\n{late}\n{configure}\n{EXCHANGE}")
    # What the program does at exit, comes first.
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")
    assert path.read_text().count("is no longer connected to peer") == 2


def test_a_failure_that_the_program_never_asks_for_is_a_warning_once(kept):
    with zh.Endpoint("soft0", name="log e") as ep, zh.Endpoint("soft0", name="log f") as other:
        peer = ep.connect(other.address)
        target = other.empty(8)
        closed = target.remote
        target.close()

        def fails() -> zh.Transfer:
            transfer = peer.write(np.ones(8, "u1"), closed)
            until(lambda: transfer.done, "it has failed")
            return transfer

        raised, dropped = fails(), fails()
        with pytest.raises(zh.VerbsError, match="its grant ended"):
            raised.wait()
        del raised
        assert kept.all_of("transfer") == []  # the other may still be asked for
        del dropped
        reported = kept.next_of("transfer")
        assert reported.levelno == logging.WARNING
        assert (
            "dropped it without wait(), which raises such errors: transfer with"
            in reported.getMessage()
        )
        assert "its owner closed or dropped it" in reported.getMessage()
        fails()
    assert kept.all_of("transfer") == []


def test_what_an_error_cuts_off_is_not_reported_apart(kept):
    with zh.Endpoint("soft0", faults="delay=50ms") as ep, zh.Endpoint("soft0", p2p=0) as other:
        peer, kept_open = ep.connect(other.address), other.empty(8)
        target = other.empty(8)
        closed = target.remote
        target.close()

        def fail() -> None:
            first = peer.write(np.ones(8, "u1"), closed)
            behind = [peer.write(np.ones(8, "u1"), kept_open.remote) for _ in range(3)]
            until(lambda: all(each.done for each in behind), "they have ended")
            assert (
                sum(row["failures"] for row in peer.stats()["routes"]) == 4
            )  # the delay: all were posted
            with pytest.raises(zh.VerbsError, match="its grant ended"):
                first.wait()

        fail()
        assert kept.all_of("transfer") == []
        later = [peer.write(np.ones(8, "u1"), closed)]
        until(lambda: later[0].done, "it has failed")
        later.clear()
        assert "dropped it without wait()" in kept.next_of("transfer").getMessage()


def test_rights_are_no_fault_on_purpose():
    with zh.Endpoint("soft0", faults="duplicate=1") as ep, zh.Endpoint("soft0", p2p=0) as other:
        peer, target = ep.connect(other.address), other.empty(8)
        peer.write(np.ones(8, "u1"), target.remote).wait()
        assert ep.stats()["faults"]["duplicate"] > 0
        closed = target.remote
        target.close()
        with pytest.raises(zh.VerbsError, match="its grant ended") as caught:
            peer.write(np.ones(8, "u1"), closed).wait()
        assert "faults injected" not in str(caught.value)


@pytest.fixture
def dropping(kept):
    """An Endpoint whose write never arrives, and the one that it goes to."""
    with zh.Endpoint("soft0", p2p=0) as other:
        inbox = other.empty(10)
        ep = zh.Endpoint("soft0", faults="drop=1", ack_timeout=20)
        peer = ep.connect(other.address)
        peer.write(np.ones(10, "u1"), inbox.remote)
        yield ep, other
    assert kept.all_of("transfer") == []


def test_an_end_that_comes_before_the_timeout_of_close_is_not_blamed_on_it(dropping):
    ep, other = dropping
    closing = threading.Thread(target=ep.close, args=(PATIENCE,))
    closing.start()
    other.close()
    closing.join(PATIENCE)
    assert not closing.is_alive()


def test_what_close_cuts_off_is_a_warning(dropping, kept):
    dropping[0].close(0.1)
    reported = kept.next_of("transfer")
    assert reported.levelno == logging.WARNING
    assert "close() gave up 1 transfer that" in reported.getMessage()
