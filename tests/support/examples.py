"""The programs of zerohop.examples, run as their users do."""

import subprocess
import sys

from support.patience import patient

__all__ = ["example"]


def example(
    name: str, *arguments: str, warnings: str = "error"
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", warnings, "-m", f"zerohop.examples.{name}", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=patient(100), check=False
    )
