"""Jobs that a launcher starts, as its user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.patience import patient

__all__ = ["PATIENCE", "run_ranks", "torchrun"]

PATIENCE = 180  # seconds, of a test that starts one


def run_ranks(
    command: list[str], cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Returns what they said."""
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        timeout=patient(PATIENCE - 30),
        check=False,
    )


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
