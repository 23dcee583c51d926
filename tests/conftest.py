"""What every Python test shares."""

import signal
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # for tests/support


# Shells start background jobs with SIGINT ignored, which child processes inherit; the tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return HERE.parent
