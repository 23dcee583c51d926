"""What happens to an adapter, and how the engine ends it: never with a hang, always with a typed error."""

import re
import sys
from pathlib import Path

import pytest

from mlx5.simulation import simulation

INSIDE = Path(__file__).with_name("inside")
ENDED = re.compile(r"\d+ \S+ (well|(VerbsError|RegistrationError|PeerLost): .*errno \d+.*)")


@pytest.fixture
def adapters():
    with simulation(devices=2) as made:
        yield made


def test_whichever_command_is_refused_the_error_says_so(adapters):
    lines = adapters.run(sys.executable, INSIDE / "life.py", timeout=100).splitlines()
    assert lines[-1] == "all"  # and the life after all that went well
    assert len(lines) > 40, lines
    for line in lines[:-1]:
        assert ENDED.fullmatch(line), line
    assert sum("Error" in line or "PeerLost" in line for line in lines) > 20, lines


@pytest.mark.parametrize(
    ("kind", "error", "said"),
    [
        ("port", "VerbsError", "port 1 of mlx5sim0 is DOWN"),
        ("queue", "(VerbsError|PeerLost)", "mlx5sim0|queue pair"),
        ("removed", "PeerLost", "DEVICE_FATAL: the adapter failed or was removed"),
    ],
)
def test_a_transfer_ends_in_time_and_says_why(adapters, kind, error, said):
    printed = adapters.run(sys.executable, "-W", "ignore", INSIDE / "trouble.py", kind)
    found = re.search(rf"^{error} after (\d+\.\d) s: .*({said})", printed, re.MULTILINE)
    assert found, printed
    assert float(re.search(r"after (\d+\.\d) s", found.group()).group(1)) < 5
    if kind != "removed":
        assert printed.endswith("again\n")  # new Endpoints work
