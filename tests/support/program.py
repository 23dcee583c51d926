"""Programs that come to their end: their status, and what they have said."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from support.patience import patient


def run(
    *command: str | Path, seconds: float = 60, **options: Any
) -> subprocess.CompletedProcess[str]:
    """options: as subprocess.run() has them."""
    return subprocess.run(
        command, capture_output=True, check=False, text=True, timeout=patient(seconds), **options
    )


def run_python(
    *arguments: str | Path, warnings: str = "", **options: Any
) -> subprocess.CompletedProcess[str]:
    """In an interpreter of its own. warnings: as `-W` has it."""
    flags = ["-W", warnings] if warnings else []
    return run(sys.executable, *flags, *arguments, **options)


def example(name: str, *arguments: str, warnings: str = "error") -> Any:
    """A program of zerohop.examples, as its users run it."""
    module = f"zerohop.examples.{name}"
    return run_python("-m", module, *arguments, warnings=warnings, seconds=100)
