"""What the README shows works as it is printed there."""

import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zerohop as zh
from support.launchers import PATIENCE, torchrun
from zerohop import cli
from zerohop.bench.command import COMMANDS
from zerohop.knobs import KEYWORDS, KNOBS


def examples(repository: Path) -> list[str]:
    text = (repository / "README.md").read_text()
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def python(code: str, *arguments: str, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
    )


def test_first_exchange_runs(repository: Path, tmp_path: Path) -> None:
    with python(examples(repository)[0], cwd=tmp_path) as process:
        printed, errors = process.communicate()
    assert process.returncode == 0, errors
    first, route = printed.splitlines()
    assert first == "499500.0"
    assert route.startswith("p2p over cpu, because ")


def test_two_processes_exchange(repository: Path, tmp_path: Path) -> None:
    code = examples(repository)[1]
    card = tmp_path / "address.bin"
    card.write_bytes(b"of an earlier run, and for everybody to read")
    with python(code, "serve", cwd=tmp_path) as server:  # ends by itself: every wait is bounded
        while b"earlier" in card.read_bytes():
            assert server.poll() is None, server.communicate()[1]
        assert card.stat().st_mode & 0o777 == 0o600  # there is a secret in it
        with python(code, cwd=tmp_path) as client:
            assert client.communicate() == ("", "")
        assert server.communicate() == ("499500.0\n", "")


def test_what_is_checked_end_to_end_runs(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ZEROHOP_DEVICE", "soft0")
    with zh.Endpoint() as theirs:
        inbox = theirs.empty(1000)
        theirs.share("inbox", inbox)
        source = np.arange(1000, dtype="uint8")
        names = {"zh": zh, "address": theirs.address, "source": source}
        exec(examples(repository)[8], names)  # noqa: S102
        assert theirs.wait_notify(7, timeout=5) is not None
        np.testing.assert_array_equal(np.asarray(inbox), source)
    assert capsys.readouterr().out == ""


def test_the_other_calls_run(repository: Path) -> None:
    with zh.Endpoint("soft0") as ours, zh.Endpoint("soft0") as theirs:
        peer = ours.connect(theirs.address)
        back = theirs.accept()
        remote, counters = theirs.empty((4, 16)), theirs.empty(8, "int64")
        local = ours.empty((4, 16))
        np.asarray(local)[:] = [[1], [2], [3], [4]]
        names = {
            "peer": peer,
            "local": local,
            "remote": remote.remote,
            "counters": counters.remote,
            "moves": [(0, 3), (1, 2)],
            "message": np.arange(5),
            "answer": np.empty(7),
        }
        received = back.recv(np.empty(5, np.int64), tag=3)
        back.send(np.ones(7), tag=4)
        exec(examples(repository)[2], names)  # noqa: S102
        assert received.wait() == 40
        assert (names["before"], names["nbytes"]) == (1, 56)
        assert list(np.asarray(counters))[3] == 5
        assert theirs.wait_notify(8) == 2
        assert theirs.wait_notify(9) == 1
        assert np.asarray(remote)[:, 0].tolist() == [3, 4, 2, 0]


def test_ranks_write_to_each_other(repository: Path, tmp_path: Path) -> None:
    code = examples(repository)[3]
    for _ in range(2):  # the second time the directory has addresses of ranks that are gone
        with python(code, "1", cwd=tmp_path) as second, python(code, "0", cwd=tmp_path) as first:
            assert first.communicate() == ("0 1 100.0\n", "")
            assert second.communicate() == ("1 1 50.0\n", "")
    files = list((tmp_path / "job").iterdir())
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_ranks_share_what_they_have(repository: Path, tmp_path: Path) -> None:
    code = examples(repository)[4]
    with python(code, "1", cwd=tmp_path) as second, python(code, "0", cwd=tmp_path) as first:
        assert first.communicate() == ("0 1.0 [0.0, 1.0, 2.0] [3.0, 12.0]\n", "")
        assert second.communicate() == ("1 1.0 [3.0, 4.0, 5.0] [3.0, 12.0]\n", "")


@pytest.mark.timeout(PATIENCE)
def test_pytorch_moves_rows(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(examples(repository)[5])
    apart = ("--redirects=3", "--log-dir=logs")  # on one pipe their words may mix
    done = torchrun(2, "rows.py", options=apart, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = [file.read_text() for file in tmp_path.rglob("stdout.log")]
    assert sorted(printed) == ["0 [0.0, 10.0]\n", "1 [1.0, 11.0]\n"]


def test_rails_are_what_they_are_said_to_be(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEROHOP_P2P", "0")  # as if the other end were on another host
    code = examples(repository)[6].replace("mlx5_0", "soft0").replace("mlx5_1", "soft0@127.0.0.2")
    made, route, rails = [re.sub(r"#.*", "", line) for line in code.splitlines()]
    names = {"zh": zh}
    exec(made, names)  # noqa: S102
    with names["ep"] as ep, zh.Endpoint(ep.device) as other:
        large = 1 << 21
        names |= {
            "peer": ep.connect(other.address),
            "local": ep.empty(large),
            "remote": other.empty(large).remote,
        }
        assert eval(route, names) == "soft0,soft0@127.0.0.2" == ep.device
        assert [rail["serves"] for rail in eval(rails, names)] == [True, True]


def test_the_benchmarks_take_the_arguments_that_are_shown(
    repository: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("zerohop.bench.plot.check_plot", lambda path: None)  # it wants matplotlib
    text = (repository / "README.md").read_text()
    monkeypatch.chdir(tmp_path)
    for name in ("old.json", "new.json"):
        Path(name).touch()
    lines = re.findall(r"^zerohop bench (\w+) (.*?)(?: +#.*)?$", text, re.MULTILINE)
    assert {suite for suite, _ in lines} == set(cli.bench.commands)
    for suite, rest in lines:
        shown = cli.bench.commands[suite].make_context(suite, rest.split())
        if suite in COMMANDS:
            assert set(shown.params["peers"]) == set(COMMANDS[suite].peers)


def test_what_happens_is_seen(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        zh.Endpoint("soft0", name="far") as far,
        tempfile.TemporaryDirectory(prefix="zh") as folder,
    ):
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        inbox = far.empty(8)
        far.share("inbox", inbox)
        names: dict[str, Any] = {"zh": zh, "address": far.address, "source": np.ones(8, "u1")}
        trace = f"{folder}/trace.json"
        scrape = "    text = urllib.request.urlopen(ep.metrics_url, timeout=60).read().decode()\n"
        code = examples(repository)[7].replace("9400", "0").replace("trace.json", trace)
        exec(code + scrape, {**names, "urllib": urllib}, told := {})  # noqa: S102
        assert (
            json.loads(Path(trace).read_text())["traceEvents"][1]["name"] == "write to far by p2p"
        )
    assert 'operation="write",le="+Inf"} 1' in told["text"]


def test_knobs_are_the_ones_that_the_code_reads(repository: Path) -> None:
    read = set()
    for folder, pattern in (("python", "*.py"), ("cpp", "*.cpp")):
        for path in (repository / folder).rglob(pattern):
            calls = r'(?:getenv|environ\.get|_from_env)\("(ZEROHOP_\w+)"'
            read |= set(re.findall(calls, path.read_text()))
    listed = re.findall(
        r"^\| `(ZEROHOP_\w+)`", (repository / "README.md").read_text(), re.MULTILINE
    )
    assert listed[: len(read)] == [f"ZEROHOP_{name.upper()}" for name in KEYWORDS if name != "name"]
    assert set(listed[: len(read)]) == read
    assert listed[len(read) :] == [knob.variable for knob in KNOBS]


def test_knobs_are_listed_as_they_are(repository: Path) -> None:
    lines = (repository / "README.md").read_text().splitlines()
    for knob in KNOBS:
        meaning = f"{knob.meaning}. {knob.allowed_text.capitalize()}."
        assert f"| `{knob.variable}` | `{knob.name}=` | {knob.default} | {meaning} |" in lines
