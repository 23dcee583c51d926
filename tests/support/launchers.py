"""Jobs that a launcher starts, as its user would, and what these need on the machine."""

import ctypes.util
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.program import run

PATIENCE = 180  # seconds, of a test that starts one
MPIS = ("openmpi", "mpich")


def needs(*, commands: tuple[str, ...] = (), modules: tuple[str, ...] = ()) -> None:
    """Skips the test where one is not installed, but not in CI, which installs them all."""
    missing = [command for command in commands if shutil.which(command) is None]
    missing += [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        assert "CI" not in os.environ, f"{missing} are not installed"
        pytest.skip(f"not installed: {', '.join(missing)}")


def run_ranks(
    command: list[str], cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Returns what they said."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return run(*command, cwd=cwd, env=environment, seconds=PATIENCE - 30)


def torchrun(
    ranks: int,
    *program: str,
    options: tuple[str, ...] = (),
    cwd: Path | None = None,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """program: a file, or -m and a module, and its arguments."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return run_ranks([*launcher, f"--nproc-per-node={ranks}", *options, *program], cwd, **variables)


def mpirun(
    mpi: str, ranks: int, folder: Path, *program: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """By one of MPIS, as Debian has them beside each other. folder: of this test."""
    needs(commands=(f"mpirun.{mpi}",), modules=("mpi4py",))
    options = {"openmpi": ["--oversubscribe", "--allow-run-as-root"], "mpich": []}[mpi]
    # mpi4py's wheel loads the MPI that it finds first, and Debian's MPICH has another name than its own build.
    if mpi == "mpich":
        library = ctypes.util.find_library("mpich")
        assert library is not None
        path = next(Path("/usr/lib").glob(f"*/{library}"))
        (folder / "libmpi.so.12").symlink_to(path)
        variables["LD_LIBRARY_PATH"] = str(folder)
    command = [f"mpirun.{mpi}", *options, "-n", str(ranks), sys.executable, *program]
    return run_ranks(command, MPI4PY_MPIABI=mpi, **variables)
