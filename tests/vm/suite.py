"""A run of pytest in a guest, and what came out of it for each file."""

import sys
from pathlib import Path

import pytest

from vm.guest import Guest
from vm.report import Result, parse_junit, readable
from vm.selection import Selection

SLOW = "5"  # ZEROHOP_TEST_SLOW: an emulated processor
OPTIONS = ["-v", "--durations=20", "-p", "no:cacheprovider", "--junitxml=/run/junit.xml"]


def show(stream: int, data: bytes) -> None:
    """Progress, for who runs pytest -s."""
    sys.stdout.write(data.decode(errors="replace"))
    sys.stdout.flush()


def run_selection(guest: Guest, selection: Selection, **environment: str) -> list[Result]:
    """The results of all its cases."""
    for line in selection.left_out:
        print(f"left out: {line}")
    command = guest.start(
        [guest.machine.python, "-m", "pytest", *OPTIONS, *selection.options, *selection.files],
        env={
            "ZEROHOP_TEST_DEVICES": selection.device,
            "ZEROHOP_TEST_SLOW": SLOW,
            **selection.environment,
            **environment,
        },
        sink=show,
    )
    status = command.wait(selection.seconds)
    assert status in (0, 1), command.report()  # 1: some of its tests failed, as reported below
    return parse_junit(guest.run(["cat", "/run/junit.xml"], timeout=60))


def check_file(results: list[Result], file: Path) -> None:
    """Fails with what failed in it, or because nothing of it ran."""
    own = [result for result in results if result.file.endswith(f"/{file.name}")]
    assert own, f"the guest ran nothing of {file}"
    failures = [result for result in own if result.outcome == "failed"]
    if failures:
        pytest.fail(f"{len(failures)} of {len(own)} failed\n{readable(failures)}", pytrace=False)
