"""Programs on simulated mlx5 adapters (README.md)."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlx5 import tree

HOUSE = Path(__file__).resolve().parents[2]
LIBRARY = "libmlx5sim.so"
# Where `make mlx5` builds, developers, and tests/gpu/run.
BUILDS = ("build/python", "build/release", "build-gpu/cpp", "build-gpu/py")


class NotBuilt(Exception):
    def __init__(self) -> None:
        super().__init__(f"there is no {LIBRARY} in {' or '.join(BUILDS)}: make mlx5 builds it")


def library() -> Path:
    """The newest one. MLX5SIM_LIBRARY names another."""
    if named := os.environ.get("MLX5SIM_LIBRARY"):
        return Path(named).resolve()
    found = [path for folder in BUILDS for path in (HOUSE / folder).glob(f"**/{LIBRARY}")]
    if not found:
        raise NotBuilt
    return max(found, key=lambda path: path.stat().st_mtime)


def unpacked_provider() -> dict[str, str]:
    """How libibverbs finds libmlx5 in a Debian package that was only unpacked, into a folder of LD_LIBRARY_PATH."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    found = [
        path for folder in folders if folder and (path := Path(folder) / "libibverbs").is_dir()
    ]
    if not found:
        return {}
    return {"RDMAV_DRIVERS": "mlx5", "LD_LIBRARY_PATH": ":".join([*folders, *map(str, found)])}


class Simulation:
    """Adapters mlx5sim0, mlx5sim1, ... that programs on this host may share. Its files: `root`."""

    def __init__(self, root: Path, devices: int = 2) -> None:
        self.root = root
        tree.build(root, devices)
        self.environment = {
            "LD_PRELOAD": str(library()),
            "MLX5SIM_TREE": str(root),
            **unpacked_provider(),
        }

    def start(self, *command: str | Path, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(word) for word in command],
            env={**os.environ, **self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str | Path, timeout: float = 60, **environment: str) -> str:
        """What it printed. Fails if the program does."""
        with self.start(*command, **environment) as program:
            return finish(program, timeout)


def finish(program: subprocess.Popen[str], timeout: float = 60) -> str:
    """What it printed. Fails if the program does, or is not done in time."""
    try:
        printed, _ = program.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        program.kill()
        printed, _ = program.communicate()
        raise AssertionError(f"{program.args} runs on after {timeout} s:\n{printed}") from None
    assert program.returncode == 0, f"{program.args}: {program.returncode}\n{printed}"
    return printed


@contextmanager
def simulation(devices: int = 2) -> Iterator[Simulation]:
    with tempfile.TemporaryDirectory(prefix="mlx5sim-") as folder:
        yield Simulation(Path(folder), devices)
