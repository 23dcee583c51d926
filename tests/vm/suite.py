"""A run of pytest in a guest, and what came out of it for each file."""

import sys
from pathlib import Path

import pytest

from vm.guest import Guest, python
from vm.kernel import kernel
from vm.pair import Pair
from vm.qemu import Machine
from vm.report import Result, parse_junit, readable
from vm.selection import Selection

TESTS = Path(__file__).resolve().parent.parent
PORT = 7717  # of the server that starts partners in guest b
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


def results_in_one_guest(selection: Selection) -> list[Result]:
    machine = Machine(kernel(), python(), memory_mib=3072, fabric=selection.fabric)
    with Guest(machine) as guest:
        return run_selection(guest, selection)


def results_between_two_guests(selection: Selection) -> list[Result]:
    with Pair(wires=1, fabric=selection.fabric) as pair:
        host = pair.wires[0].address(1)
        server = pair.b.start(
            [pair.b.machine.python, "-m", "support.far", host, PORT],
            env={"ZEROHOP_TEST_SLOW": SLOW},
            cwd=TESTS,
        )
        server.expect("listening", timeout=180)  # the first import reads every file through 9p
        found = run_selection(pair.a, selection, ZEROHOP_TEST_FAR=f"{host}:{PORT}")
        assert not server.ended, server.report()
        return found


def check_both_had_a_part(results: list[Result]) -> None:
    """Every case named its far partner, or had but a process, which was far as well."""
    ran = [result for result in results if result.outcome == "passed"]
    assert [result for result in ran if "far" in result.name]
    assert not [result for result in ran if "-thread" in result.name or "-process" in result.name]


def check_file(results: list[Result], file: Path) -> None:
    """Fails with what failed in it, or because nothing of it ran."""
    own = [result for result in results if result.file.endswith(f"/{file.name}")]
    assert own, f"the guest ran nothing of {file}"
    failures = [result for result in own if result.outcome == "failed"]
    if failures:
        pytest.fail(f"{len(failures)} of {len(own)} failed\n{readable(failures)}", pytrace=False)
