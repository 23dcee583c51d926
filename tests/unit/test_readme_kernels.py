"""The kernels that docs/kernels.md shows compile as it says: for CuPy, by NVRTC, by nvcc and by Numba."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zerohop as zh
from cuda.core import LaunchConfig, Program, ProgramOptions
from numba import cuda
from support.numba_linker import linked
from support.nvcc import compiles, nvcc
from support.pages import snippet
from support.program import run

# What the examples take as given.
QUEUE = SimpleNamespace(address=1 << 40, value=b"queue")
BOARD = SimpleNamespace(address=1 << 41, value=b"board")
MINE = SimpleNamespace(nbytes=4096)


def shown(word: str, language: str = "python") -> str:
    return snippet("docs/kernels.md", word, language)


def source(block: str) -> str:
    [code] = re.findall(r'r"""(.*?)"""', block, re.DOTALL)
    return code


def test_that_of_cupy(tmp_path: Path) -> None:
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


def test_that_of_cuda_core() -> None:
    launched: list[tuple[Any, ...]] = []
    names = {"zh": zh, "queue": QUEUE, "board": BOARD, "mine": MINE, "stream": "a stream"}
    names |= {"gpu": SimpleNamespace(arch="90"), "LaunchConfig": LaunchConfig, "Program": Compiler}
    names |= {"ProgramOptions": ProgramOptions, "launch": lambda *a: launched.append(a)}
    exec(shown("ProgramOptions("), names)  # noqa: S102
    [(_, _, (name, code), *arguments)] = launched
    assert arguments == [QUEUE.address, BOARD.address, MINE.nbytes]
    assert code.startswith(b"\x7fELF")
    assert name.encode() in code


def test_that_of_nvcc(tmp_path: Path) -> None:
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


def test_that_of_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "jit", Jitted)
    names = {"cuda": cuda, "queue": QUEUE, "board": BOARD, "mine": MINE}
    exec(shown("zn.put_notify"), names)  # noqa: S102
    monkeypatch.undo()  # the linker compiles with it
    assert Jitted.made.launched == ((1, 256), (QUEUE.address, BOARD.address, MINE.nbytes))
    assert linked(Jitted.made.kernel, "void(int64, int64, int64)").startswith(b"\x7fELF")
