"""A program as a string, in an interpreter of its own."""

import subprocess
import sys
from pathlib import Path

from support.patience import patient


def run_program(
    code: str,
    *arguments: str,
    seconds: float = 60,
    warnings: str = "",
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Its status, and what it has said. warnings: as `-W` has it."""
    flags = ["-W", warnings] if warnings else []
    return subprocess.run(
        [sys.executable, *flags, "-c", code, *arguments],
        capture_output=True,
        check=False,
        cwd=cwd,
        text=True,
        timeout=patient(seconds),
    )
