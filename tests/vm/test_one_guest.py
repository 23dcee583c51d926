"""The contract suite on Soft-RoCE: libibverbs, the kernel's RDMA stack, the device rxe0.

One run of pytest in one guest; each of its files is one test here. An emulated processor is ten
times slower than a real one, so the guest runs what a device can change, once:

- the partner is a process; a thread of the test itself only where the case is about threads;
- memory is NumPy's: the kernel pins pages whoever allocated them, and importing PyTorch alone takes
  a minute there;
- LEFT_OUT never reaches the device, or says nothing new there. `tests/vm/run pytest tests/contract`
  runs them all, in half an hour.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vm.guest import Guest, python
from vm.kernel import kernel
from vm.qemu import REPOSITORY, Machine
from vm.report import Result, parse_junit, readable

CONTRACT = Path("tests/contract")
LEFT_OUT = {
    "test_addresses.py",  # the format of addresses, and the control channel's secret
    "test_dtypes.py",  # what an array is; bytes are bytes to a device
    "test_hostile_bytes.py",  # the control channel and the wire of soft0
    "test_partners.py",  # the tests' own tools
    "test_scarcity.py",  # descriptors and memory of the process; starts an interpreter per case
    "test_shapes.py",  # how an array becomes a list of elements, in the engine
    "test_sharing.py",  # names, over the control channel
    "test_timeouts.py",  # waits in which nothing arrives
    "test_values.py",  # arguments refused before anything is posted
}
SLOW = "5"  # ZEROHOP_TEST_SLOW
TIMEOUT = 900.0  # seconds
FILES = sorted(path.name for path in (REPOSITORY / CONTRACT).glob("test_*.py"))
RUN = [name for name in FILES if name not in LEFT_OUT]


def show(stream: int, data: bytes) -> None:
    """Progress, for who runs pytest -s."""
    sys.stdout.write(data.decode(errors="replace"))
    sys.stdout.flush()


@pytest.fixture(scope="module")
def results() -> Iterator[list[Result]]:
    options = ["-v", "-p", "no:cacheprovider", "--junitxml=/run/junit.xml"]
    with Guest(Machine(kernel(), python(), memory_mib=3072)) as guest:
        command = guest.start(
            [python(), "-m", "pytest", *options, *[CONTRACT / name for name in RUN]],
            env={
                "ZEROHOP_TEST_DEVICES": "rxe0",
                "ZEROHOP_TEST_KINDS": "numpy",
                "ZEROHOP_TEST_PARTNERS": "process",
                "ZEROHOP_TEST_SLOW": SLOW,
            },
            sink=show,
        )
        status = command.wait(TIMEOUT)
        assert status in (0, 1), command.report()  # 1: some of its tests failed, as told below
        yield parse_junit(guest.run(["cat", "/run/junit.xml"], timeout=60))


@pytest.mark.timeout(TIMEOUT + 180)
@pytest.mark.parametrize("file", RUN)
def test_contract(results: list[Result], file: str) -> None:
    own = [result for result in results if result.file.endswith("/" + file)]
    assert own, f"the guest ran nothing of {file}"
    failures = [result for result in own if result.outcome == "failed"]
    if failures:
        pytest.fail(f"{len(failures)} of {len(own)} failed\n{readable(failures)}", pytrace=False)
