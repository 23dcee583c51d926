"""Traces of what a process moved: what is in them, and that they are whole or not there."""

import json
import os
import re
import stat
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zerohop as zh
from click.testing import CliRunner
from support.forking import forking
from support.program import run_python
from zerohop.cli import main


def read(path: Path) -> dict[str, Any]:
    """With what the format asks of asynchronous events: each begins, and ends once at most, and later."""
    trace: dict[str, Any] = json.loads(path.read_text())
    begun: dict[Any, Any] = {}
    for row in trace["traceEvents"]:
        assert {"ph", "name", "pid", "tid"} <= set(row)
        key = (row["pid"], row.get("cat"), row.get("id2", {}).get("local"), row["name"])
        if row["ph"] == "b":
            assert key not in begun
            begun[key] = row["ts"]
        elif row["ph"] == "e":
            assert begun[key] <= row["ts"]
        else:
            assert row["ph"] == "M"
    return trace


def begins(trace: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(row["name"], row["args"]) for row in trace["traceEvents"] if row["ph"] == "b"]


def test_transfers_and_notifications(tmp_path):
    path = tmp_path / "trace.json"
    with (
        zh.Endpoint("soft0", name="rec a", p2p=False) as ep,
        zh.Endpoint("soft0", name="rec b", p2p=False) as other,
    ):
        peer = ep.connect(other.address)
        target = other.empty(1000)
        remote = target.remote
        peer.write(np.ones(1000, "u1"), remote).wait()  # before
        begin = time.monotonic_ns()
        with zh.record(path, name="rank 3") as recording:
            peer.write(np.ones(1000, "u1"), remote, notify=(7, 5)).wait()
            other.wait_notify(7)
            received = other.accept().recv(np.empty(10, "u1"), tag=1)
            target.close()
            with pytest.raises(zh.VerbsError):
                peer.read(remote, np.ones(1000, "u1")).wait()
            assert not path.exists()
        end = time.monotonic_ns()
        peer.send(np.ones(10, "u1"), tag=1).wait()  # behind
        received.wait()
    assert recording.dropped == 0
    trace = read(path)
    [write, taken, recv, failed] = begins(trace)
    route = {"route": "host", "device": "soft0"}
    assert write == ("write to rec b by host", {"peer": "rec b", "nbytes": 1000, **route})
    assert taken == ("wait_notify", {"slot": 7, "value": 5})
    assert recv == (
        "recv from rec a by host",
        {"peer": "rec a", "nbytes": 10, "under way": True, **route},
    )
    assert failed[0] == "read from rec b by host"
    assert "REM_ACCESS_ERR" in failed[1]["error"]
    times = [row["ts"] * 1e3 for row in trace["traceEvents"] if "ts" in row]
    assert begin - 1 <= min(times)
    assert max(times) <= end + 1
    assert trace["traceEvents"][0]["args"] == {"name": "rank 3"}
    assert trace["otherData"]["events_dropped"] == 0
    assert {row["pid"] for row in trace["traceEvents"]} == {os.getpid()}


def test_what_has_no_room_is_counted(tmp_path):
    with (
        zh.Endpoint("soft0") as ep,
        zh.Endpoint("soft0") as other,
        zh.record(tmp_path / "trace.json", events=4) as recording,
    ):
        peer = ep.connect(other.address)
        target = other.empty(8)
        for _ in range(10):
            peer.write(np.ones(8, "u1"), target.remote).wait()
    assert recording.dropped == 6
    trace = read(tmp_path / "trace.json")
    assert len(begins(trace)) == 4
    assert trace["otherData"]["events_dropped"] == 6


def test_the_file_is_whole_or_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    path.write_text("before")

    def fail(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(json, "dumps", fail)
        with pytest.raises(OSError, match="No space left"), zh.record(path):
            pass
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["trace.json"]
    with pytest.raises(ZeroDivisionError), zh.record(path):
        _ = 1 // 0
    assert begins(read(path)) == []
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600
    assert os.listdir(tmp_path) == ["trace.json"]


def test_what_is_no_file_is_written_to_and_stays(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    taken: list[str] = []
    reader = threading.Thread(target=lambda: taken.append(path.read_text()), daemon=True)
    reader.start()
    with zh.record(path):
        pass
    reader.join(20)
    assert json.loads(taken[0])["traceEvents"][0]["name"] == "process_name"
    assert stat.S_ISFIFO(path.stat().st_mode)
    part = tmp_path / "part"
    part.write_text(json.dumps(one("rank 0", 7, "here", 0, 1.0)))
    done = run_python("-m", "zerohop", "merge", part, "-o", "/dev/stdout")
    assert len(begins(json.loads(done.stdout))) == 1


def test_mistakes(tmp_path):
    named = re.escape(f"directory: '{tmp_path}/missing/trace.json'")
    with (
        pytest.raises(FileNotFoundError, match=named),
        zh.record(tmp_path / "missing" / "trace.json"),
    ):
        raise AssertionError("it began")
    with pytest.raises(ValueError, match="events must be from 1"):
        zh.record(tmp_path / "trace.json", events=0)
    with pytest.raises(TypeError, match="events must be an integer"):
        zh.record(tmp_path / "trace.json", events="many")
    already = pytest.raises(RuntimeError, match="is being recorded already")
    with zh.record(tmp_path / "trace.json"), already, zh.record(tmp_path / "second.json"):
        raise AssertionError("it began")
    assert os.listdir(tmp_path) == ["trace.json"]


def test_a_child_of_fork_writes_no_file(tmp_path):
    path = tmp_path / "trace.json"
    recording = zh.record(path)
    with recording:
        with forking():
            child = os.fork()
        if child == 0:
            recording.__exit__(None, None, None)
            written = os.listdir(tmp_path)
            with zh.record(tmp_path / "child.json"):
                pass
            os._exit(0 if (written, os.listdir(tmp_path)) == ([], ["child.json"]) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert not path.exists()
    assert begins(read(path)) == []


def one(name: str, pid: int, boot: str, epoch: int, ts: float) -> dict[str, Any]:
    event = {"name": "write to x by p2p", "cat": "transfer", "id2": {"local": "0x0"}, "tid": 0}
    return {
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}},
            {**event, "pid": pid, "ph": "b", "ts": ts, "args": {}},
            {**event, "pid": pid, "ph": "e", "ts": ts + 1},
        ],
        "otherData": {"boot": boot, "epoch_minus_clock_ns": epoch, "events_dropped": 1},
    }


def test_traces_are_laid_together(tmp_path):
    parts = [
        one("rank 0", 7, "here", 5_000_000, 100.0),
        one("rank 1", 8, "here", 5_000_001, 100.5),
        one("rank 2", 7, "there", 2_000_000, 3100.0),  # another host, where time began later
    ]
    names = []
    for number, part in enumerate(parts):
        names.append(str(tmp_path / f"{number}.json"))
        Path(names[-1]).write_text(json.dumps(part))
    both = tmp_path / "all.json"
    done = CliRunner().invoke(main, ["merge", *names, "-o", str(both)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    trace = read(both)
    starts = {row["pid"]: row["ts"] for row in trace["traceEvents"] if row["ph"] == "b"}
    assert len(starts) == 3
    assert list(starts.values()) == [100.0, 100.5, 100.0]
    reported = {row["args"]["name"]: row["pid"] for row in trace["traceEvents"] if row["ph"] == "M"}
    assert list(reported) == ["rank 0", "rank 1", "rank 2"]
    assert list(reported.values()) == list(starts)
    assert trace["otherData"]["events_dropped"] == 3
