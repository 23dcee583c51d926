"""What every Python test shares."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # for tests/support


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return HERE.parent
