"""What the README and the chapters in docs show works as it is printed there, kernels included."""

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zerohop as zh
from cuda.core import LaunchConfig, Program, ProgramOptions
from numba import cuda
from support.launchers import PATIENCE, torchrun
from support.numba_linker import linked
from support.nvcc import compiles, nvcc
from support.pages import saved, snippet, text
from support.program import run
from zerohop._endpoint.knobs import KEYWORDS, KNOBS, OF_WORLDS


def python(code: str, *arguments: str, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
    )


def test_two_processes_exchange(tmp_path):
    code = saved("docs/transfers.md", "exchange.py")
    card = tmp_path / "address.bin"
    card.write_bytes(b"of an earlier run, and for everybody to read")
    with python(code, "serve", cwd=tmp_path) as server:  # ends by itself: every wait is bounded
        while b"earlier" in card.read_bytes():
            assert server.poll() is None, server.communicate()[1]
        assert card.stat().st_mode & 0o777 == 0o600  # there is a secret in it
        with python(code, cwd=tmp_path) as client:
            assert client.communicate() == ("", "")
        assert server.communicate() == ("499500.0\n", "")


def test_ranks_write_to_each_other(tmp_path):
    code = saved("docs/world.md", "job.py")
    for _ in range(2):  # the second time the directory has addresses of ranks that are gone
        with python(code, "1", cwd=tmp_path) as second, python(code, "0", cwd=tmp_path) as first:
            assert first.communicate() == ("0 1 100.0\n", "")
            assert second.communicate() == ("1 1 50.0\n", "")
    files = list((tmp_path / "job").iterdir())
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_ranks_share_what_they_have(tmp_path):
    code = saved("docs/collectives.md", "share.py")
    with python(code, "1", cwd=tmp_path) as second, python(code, "0", cwd=tmp_path) as first:
        assert first.communicate() == ("0 1.0 [3.0, 12.0] [3.0, 5.0, 7.0] 1\n", "")
        assert second.communicate() == ("1 1.0 [3.0, 12.0] [3.0, 5.0, 7.0] 1\n", "")


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("rows.py", ["0 [0.0, 10.0]\n", "1 [1.0, 11.0]\n"]),
        ("ring.py", ["0 [1.0, 1.0, 1.0, 1.0]\n", "1 [0.0, 0.0, 0.0, 0.0]\n"]),
    ],
)
def test_pytorch_moves_rows(tmp_path, file, words):
    (tmp_path / file).write_text(saved("docs/torch.md", file))
    apart = ("--redirects=3", "--log-dir=logs")  # on one pipe their words may mix
    done = torchrun(2, file, options=apart, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = [log.read_text() for log in tmp_path.rglob("stdout.log")]
    assert sorted(printed) == words


def test_what_happens_is_seen(monkeypatch):
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
        code = (
            snippet("docs/counters.md", "metrics=9400")
            .replace("9400", "0")
            .replace("trace.json", trace)
        )
        exec(code + scrape, {**names, "urllib": urllib}, reported := {})  # noqa: S102
        assert (
            json.loads(Path(trace).read_text())["traceEvents"][1]["name"] == "write to far by p2p"
        )
    assert 'operation="write",le="+Inf"} 1' in reported["text"]


def test_knobs_are_the_ones_that_the_code_reads(repository):
    read = set()
    for folder, pattern in (("python", "*.py"), ("cpp", "*.cpp")):
        for path in (repository / folder).rglob(pattern):
            calls = r'(?:getenv|environ\.get|_from_env)\("(ZEROHOP_\w+)"'
            read |= set(re.findall(calls, path.read_text()))
    listed = re.findall(r"^\| `(ZEROHOP_\w+)`", text("docs/knobs.md"), re.MULTILINE)
    assert listed[: len(read)] == [f"ZEROHOP_{name.upper()}" for name in KEYWORDS if name != "name"]
    assert set(listed[: len(read)]) == read
    assert listed[len(read) :] == [*(knob.variable for knob in KNOBS), *OF_WORLDS]


def test_knobs_are_listed_as_they_are():
    lines = text("docs/knobs.md").splitlines()
    for knob in KNOBS:
        meaning = f"{knob.meaning}. {knob.allowed_text.capitalize()}."
        assert f"| `{knob.variable}` | `{knob.name}=` | {knob.default} | {meaning} |" in lines


# What the examples take as given.
QUEUE = SimpleNamespace(address=1 << 40, value=b"queue")
BOARD = SimpleNamespace(address=1 << 41, value=b"board")
MINE = SimpleNamespace(nbytes=4096)


def shown(word: str, language: str = "python") -> str:
    return snippet("docs/kernels.md", word, language)


def source(block: str) -> str:
    [code] = re.findall(r'r"""(.*?)"""', block, re.DOTALL)
    return code


def test_that_of_cupy(tmp_path):
    block = shown("cupy.RawKernel")
    file = tmp_path / "exchange.cu"
    file.write_text(source(block))
    compiles(file, "sm_90", tmp_path)
    assert "options=zh.compile_options()" in block


class Compiler:
    """A Program whose kernels are not loaded, which would take a GPU."""

    def __init__(self, *arguments: Any) -> None:
        self._program = Program(*arguments)

    def compile(self, target: str) -> SimpleNamespace:
        code: bytes = self._program.compile(target).code
        return SimpleNamespace(get_kernel=lambda name: (name, code))


def test_that_of_cuda_core():
    launched: list[tuple[Any, ...]] = []
    names = {"zh": zh, "queue": QUEUE, "board": BOARD, "mine": MINE, "stream": "a stream"}
    names |= {"gpu": SimpleNamespace(arch="90"), "LaunchConfig": LaunchConfig, "Program": Compiler}
    names |= {"ProgramOptions": ProgramOptions, "launch": lambda *a: launched.append(a)}
    exec(shown("ProgramOptions("), names)  # noqa: S102
    [(_, _, (name, code), *arguments)] = launched
    assert arguments == [QUEUE.address, BOARD.address, MINE.nbytes]
    assert code.startswith(b"\x7fELF")
    assert name.encode() in code


def test_that_of_nvcc(tmp_path):
    block = shown("ProgramOptions(")
    (tmp_path / "exchange.cu").write_text(source(block))
    path = f"{Path(nvcc()).parent}:{os.environ['PATH']}"
    command = shown("nvcc -cubin", "")
    done = run("bash", "-ec", command, cwd=tmp_path, env=os.environ | {"PATH": path})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "exchange.cubin").read_bytes().startswith(b"\x7fELF")


class Jitted:
    """What cuda.jit makes, which is launched nowhere."""

    made: Any = None

    def __init__(self, kernel: Callable[..., None]) -> None:
        Jitted.made, self.kernel, self.launched = self, kernel, None

    def __getitem__(self, grid: tuple[int, int]) -> Callable[..., None]:
        def launch(*arguments: int) -> None:
            self.launched = (grid, arguments)

        return launch


def test_that_of_numba(monkeypatch):
    monkeypatch.setattr(cuda, "jit", Jitted)
    names = {"cuda": cuda, "queue": QUEUE, "board": BOARD, "mine": MINE}
    exec(shown("zn.put_notify"), names)  # noqa: S102
    monkeypatch.undo()  # the linker compiles with it
    assert Jitted.made.launched == ((1, 256), (QUEUE.address, BOARD.address, MINE.nbytes))
    assert linked(Jitted.made.kernel, "void(int64, int64, int64)").startswith(b"\x7fELF")
