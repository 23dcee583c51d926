"""Frameworks that a machine may have in a version that cannot be imported: what needs one is skipped, with the reason."""

import warnings
from importlib import import_module
from typing import Any

import pytest

# What numba-cuda imports at the first compilation of a kernel; numba-cuda itself may come without.
COMPILER = "numba.cuda.cudaimpl"
unusable: dict[str, str] = {}  # why, by name: a row for each, and a line at the end of the run


def usable(module: str, framework: str) -> Any:
    """The module, which is the framework or needs it. Skips the test, or the file, where it cannot be imported."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of NumPy, with a Numba that is older
            return import_module(module)
    except (ImportError, AttributeError) as error:  # what it lacks itself, or misses in others
        unusable[framework] = f"{type(error).__name__}: {error}"
    pytest.skip(
        f"{framework} cannot be imported: {unusable[framework]}",
        allow_module_level=True,
    )
