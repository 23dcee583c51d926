"""`zerohop top`: who is found, what is computed from two looks, and the table."""

import io
import os
import pty
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import zerohop as zh
from click.testing import CliRunner
from rich.console import Console
from support.program import run_python
from zerohop.cli import main
from zerohop.observe import sources, view
from zerohop.observe.rates import Row, rows_between
from zerohop.observe.sources import Answer, Source, ask_all, local_sources, named_source


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    """A folder of its own for sockets, whose paths have to be short."""
    with tempfile.TemporaryDirectory(prefix="zh") as path:
        monkeypatch.setenv("XDG_RUNTIME_DIR", path)
        monkeypatch.setattr(tempfile, "tempdir", path)
        yield Path(path)


def table_of(text: str) -> list[dict[str, str]]:
    titles, *lines = (line.split() for line in text.splitlines())
    assert titles == list(view._TITLES)
    return [dict(zip(titles, line, strict=True)) for line in lines]


BUSY = """
import numpy as np, sys, threading, zerohop as zh
with zh.Endpoint("soft0", name="busy", metrics="local") as ep, zh.Endpoint("soft0", name="far") as other:
    peer, target = ep.connect(other.address), other.empty(1000)
    source, stop = ep.empty(1000), threading.Event()
    def work():
        while not stop.is_set():
            peer.write(source, target.remote, notify=(1, 1)).wait()
    worker = threading.Thread(target=work)
    worker.start()
    print(flush=True)
    sys.stdin.read()
    stop.set()
    worker.join()
"""


def test_processes_of_this_host_through_a_pipe():
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as busy:
        busy.stdout.readline()
        done = run_python("-m", "zerohop", "top", "--once", "--interval", "0.2")
        busy.stdin.close()
        assert busy.wait(60) == 0
    assert (done.returncode, done.stderr) == (0, "")
    rows = table_of(done.stdout)
    first = rows[0]  # the busiest
    assert first["process"] == str(busy.pid)
    assert (first["endpoint"], first["peer"]) == ("busy", "far")
    assert (first["route"], first["device"]) == ("p2p", "cpu")
    assert first["out/s"].endswith(("kB", "MB", "GB"))
    assert first["in/s"] == "0B"
    assert first["errors"] == "0"
    assert first["p50"].endswith(("ns", "us", "ms"))
    assert all(row["ops/s"] == "0" for row in rows[1:])


def test_in_a_terminal_until_it_is_interrupted():
    ours, theirs = pty.openpty()
    with (
        zh.Endpoint("soft0", name="seen", metrics="local") as ep,
        zh.Endpoint("soft0", name="far") as other,
    ):
        ep.connect(other.address)
        command = [sys.executable, "-m", "zerohop", "top", "--interval", "0.05"]
        size = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, env=size) as process:
            os.close(theirs)
            drawn = b""
            while drawn.count(b"zerohop top") < 2 or b"seen" not in drawn:
                drawn += os.read(ours, 1 << 16)
            process.send_signal(signal.SIGINT)
            with suppress(OSError):  # man 4 pts: EIO once the other side is closed
                while os.read(ours, 1 << 16):
                    pass
            assert process.wait(20) == 130
    os.close(ours)
    assert b"far" in drawn
    assert b"errors" in drawn


def test_by_address():
    with zh.Endpoint("soft0", name="port", metrics=0) as ep, zh.Endpoint("soft0") as other:
        target = other.empty(8)
        ep.connect(other.address).write(np.ones(8, "u1"), target.remote).wait()
        url = str(ep.metrics_url)
        done = CliRunner().invoke(main, ["top", url, "--once", "--interval", "0.05"])
        assert done.exit_code == 0, done.output
        [row] = [row for row in table_of(done.stdout) if row["route"] == "p2p"]
        assert row["endpoint"] == "port"
        assert row["process"] == url.removeprefix("http://").removesuffix("/metrics")
        assert row["p50"] == "-"  # nothing in that interval
    done = CliRunner().invoke(main, ["top", url, "--once", "--interval", "0.05"])
    assert done.exit_code == 1
    assert "refused" in done.stderr
    done = CliRunner().invoke(main, ["top", "nowhere", "--once"])
    assert done.exit_code == 2


def test_the_socket_of_a_process_that_was_killed_is_put_away(runtime):
    folder = runtime / "zerohop"
    folder.mkdir(mode=0o700)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(60)
    stale, own = folder / f"{ended.pid}-0.sock", folder / f"{os.getpid()}-0.sock"
    for path in (stale, own):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    assert len(local_sources()) == 2
    [answer] = ask_all(local_sources())
    assert answer.source.path == own  # that process is there: it is named, and kept
    assert "refused" in answer.trouble
    assert not stale.exists()
    assert own.exists()


def test_one_that_does_not_answer_holds_the_others_up_no_longer_than_its_patience(monkeypatch):
    monkeypatch.setattr(sources, "_PATIENCE", 0.3)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        socket.create_server(("127.0.0.1", 0)) as endless,
        socket.create_server(("127.0.0.1", 0)) as slow,
        zh.Endpoint("soft0", metrics=0) as ep,
    ):
        talkers = [
            threading.Thread(target=talk, args=(endless, b"\r\n", 0.0)),
            threading.Thread(target=talk, args=(slow, b"X: y\r\n", 0.2)),
        ]
        for talker in talkers:
            talker.start()
        named = [f"{server.getsockname()[1]}" for server in (silent, endless, slow)]
        asked = [named_source(each) for each in [*named, str(ep.metrics_url)]]
        answers = ask_all(asked)
        for talker in talkers:
            talker.join(60)
    assert [bool(answer.trouble) for answer in answers] == [True, True, True, False]
    assert all("did not end" in answer.trouble for answer in answers[:3])


def talk(server: socket.socket, line: bytes, pause: float) -> None:
    """Until the other side has had enough: an empty line ends the head."""
    client, _ = server.accept()
    with client, suppress(OSError):
        client.sendall(b"HTTP/1.0 200 OK\r\n")
        while True:
            client.sendall(line)
            time.sleep(pause)


def sample(name: str, value: float, **labels: str) -> str:
    shown = ",".join(f'{key}="{each}"' for key, each in labels.items())
    return f"{name}{{{shown}}} {value}\n"


def look(at: float, ops: int, out: int, buckets: tuple[int, int, int], failures: int = 0) -> Answer:
    way = {"endpoint": "a", "peer": 'b\\"', "route": "p2p", "device": "cpu"}
    text = sample("zerohop_operations_total", ops, **way, operation="write")
    text += sample("zerohop_operations_total", 5, **way, operation="read")
    text += sample("zerohop_bytes_total", out, **way, direction="out")
    text += sample("zerohop_failures_total", failures, **way)
    text += sample("zerohop_transfers_under_way", 2, **way)
    for bound, count in zip(("1e-06", "2e-06", "+Inf"), buckets, strict=True):
        for operation, scale in (("write", 1), ("recv", 1000)):
            labels = {**way, "operation": operation, "le": bound}
            text += sample("zerohop_latency_seconds_bucket", scale * count, **labels)
    return Answer(Source("1"), at, text + "garbage\nzerohop_x{} nonsense\n")


def test_rates_are_of_the_time_between_two_looks():
    before = look(10.0, ops=100, out=1000, buckets=(50, 60, 60))
    [row] = rows_between(before, look(12.0, ops=300, out=5000, buckets=(150, 250, 260), failures=3))
    assert (row.process, row.endpoint, row.peer) == ("1", "a", 'b"')
    assert row.operations == 100
    assert row.bytes_out == 2000
    assert (row.bytes_in, row.failures, row.under_way) == (0, 3, 2)
    assert row.p50 == pytest.approx(1e-6)  # 100 of 200 are at most that
    assert row.p99 == 2e-6  # the last bucket has no end


def test_a_lost_peer_is_reported_for_its_errors():
    """And routes that nothing ever took are not listed at all."""

    def reported(peer: str, ops: int, failures: int, connected: int) -> str:
        way = {"endpoint": "a", "peer": peer, "route": "p2p", "device": "cpu"}
        return (
            sample("zerohop_connected", connected, endpoint="a", peer=peer)
            + sample("zerohop_operations_total", ops, operation="write", **way)
            + sample("zerohop_failures_total", failures, **way)
        )

    text = (
        reported("left", 5, 0, 0)
        + reported("lost", 5, 2, 0)
        + reported("here", 5, 0, 1)
        + reported("new", 0, 0, 1)
    )
    before, now = (Answer(Source("1"), at, text) for at in (1.0, 2.0))
    rows = rows_between(before, now)
    assert [(row.peer, row.route, row.is_there, row.failures) for row in rows] == [
        ("lost", "p2p", False, 2),
        ("here", "p2p", True, 0),
        ("new", "", True, 0),
    ]
    assert "gone:lost" in view.plain(rows)


def test_the_table_takes_no_orders_from_names():
    row = Row("1", "\x1b[2J[red]", "x" * 100, "p2p", "", 1234.5, 2e9, 0, 0, 1, 1.5e-6, 2.0, 7)
    [_, line] = view.plain([row]).splitlines()
    cells = line.split()
    assert cells[:5] == ["1", "?[2J[red]", "x" * 23 + "~", "p2p", "-"]
    assert cells[5:] == ["1.234k", "2GB", "0B", "0", "1", "1.5us", "2s", "7"]
    screen = Console(file=io.StringIO(), width=200, force_terminal=True)
    screen.print(view._drawn([row], ["trouble"]))
    drawn = screen.file.getvalue()
    assert "?[2J[red]" in drawn
    assert "\x1b[2J" not in drawn
    assert "trouble" in drawn


def test_the_socket_of_one_whose_number_another_has_is_put_away(runtime):
    folder = runtime / "zerohop"
    folder.mkdir(mode=0o700)
    path = folder / f"{os.getpid()}-0.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    os.utime(path, (0, 0))
    assert ask_all(local_sources()) == []
    assert not path.exists()


@pytest.mark.parametrize("value", ["NaN", "-Inf", "x", "1e999"])
def test_what_is_no_number_counts_for_nothing(value):
    way = 'endpoint="a",peer="b",route="p2p",device="cpu"'
    metrics = ("transfers_under_way", "failures_total", "operations_total", "bytes_total")
    text = "".join(f"zerohop_{metric}{{{way}}} {value}\n" for metric in metrics)
    assert rows_between(None, Answer(Source("1"), 1.0, text)) == []
