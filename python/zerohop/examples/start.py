"""The start of an example: what takes it long to import is imported here, so that Ctrl-C ends that, too, without a traceback."""

from __future__ import annotations

import importlib
import sys

__all__ = ["start"]


def start(name: str) -> None:
    """Runs the command line of that example; ends the process."""
    try:
        importlib.import_module(f"zerohop.examples.{name}.program").main(
            prog_name=f"python -m zerohop.examples.{name}"
        )
    except KeyboardInterrupt:
        print(f"{name} was interrupted before it began", file=sys.stderr)
        raise SystemExit(130) from None
