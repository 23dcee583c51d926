"""The contract suite on Soft-RoCE: libibverbs, the kernel's RDMA stack, the device rxe0.

One run of pytest in one guest; each of its files is one test here. selection.py says which cases.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vm.guest import Guest, python
from vm.kernel import kernel
from vm.qemu import Machine
from vm.report import Result, parse_junit, readable
from vm.selection import CASES_LEFT_OUT, FILES_LEFT_OUT, contract_files, selection

SLOW = "5"  # ZEROHOP_TEST_SLOW
SELECTION = selection()


def show(stream: int, data: bytes) -> None:
    """Progress, for who runs pytest -s."""
    sys.stdout.write(data.decode(errors="replace"))
    sys.stdout.flush()


@pytest.fixture(scope="module")
def results() -> Iterator[list[Result]]:
    options = ["-v", "--durations=20", "-p", "no:cacheprovider", "--junitxml=/run/junit.xml"]
    with Guest(Machine(kernel(), python(), memory_mib=3072)) as guest:
        command = guest.start(
            [python(), "-m", "pytest", *options, *SELECTION.options, *SELECTION.files],
            env={
                "ZEROHOP_TEST_DEVICES": "rxe0",
                "ZEROHOP_TEST_SLOW": SLOW,
                **SELECTION.environment,
            },
            sink=show,
        )
        status = command.wait(SELECTION.seconds)
        assert status in (0, 1), command.report()  # 1: some of its tests failed, as told below
        yield parse_junit(guest.run(["cat", "/run/junit.xml"], timeout=60))


@pytest.mark.timeout(SELECTION.seconds + 600)
@pytest.mark.parametrize("file", SELECTION.files, ids=lambda path: path.stem)
def test_on_rxe0(results: list[Result], file: Path) -> None:
    own = [result for result in results if result.file.endswith(f"/{file.name}")]
    assert own, f"the guest ran nothing of {file}"
    failures = [result for result in own if result.outcome == "failed"]
    if failures:
        pytest.fail(f"{len(failures)} of {len(own)} failed\n{readable(failures)}", pytrace=False)


def test_what_is_left_out_exists(repository: Path) -> None:
    """A case that was renamed would run again unnoticed."""
    assert set(contract_files()) >= FILES_LEFT_OUT
    for case in CASES_LEFT_OUT:
        file, _, name = case.partition("::")
        text = (repository / "tests/contract" / file).read_text()
        assert f"def {name.partition('[')[0]}(" in text, case
