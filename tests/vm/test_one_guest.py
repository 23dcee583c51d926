"""The contract suite on Soft-RoCE: libibverbs, the kernel's RDMA stack, the device rxe0.

One run of pytest in one guest; each of its files is one test here. selection.py says which cases.
"""

import pytest

from vm import selection
from vm.guest import Guest, python
from vm.kernel import kernel
from vm.qemu import Machine
from vm.suite import check_file, run_selection

SELECTION = selection.in_one_guest()


@pytest.fixture(scope="module")
def results():
    with Guest(Machine(kernel(), python(), memory_mib=3072)) as guest:
        yield run_selection(guest, SELECTION)


@pytest.mark.timeout(SELECTION.seconds + 600)
@pytest.mark.parametrize("file", SELECTION.files, ids=lambda path: path.stem)
def test_on_rxe0(results, file):
    check_file(results, file)


def test_what_is_left_out_exists(repository):
    """A case that was renamed would run again unnoticed."""
    for names in (*selection.LEFT_OUT.values(), *selection.OF_ONE_HOST.values()):
        for each in names:
            file, _, name = each.partition("::")
            text = (repository / selection.CONTRACT / file).read_text()
            assert f"def {name.partition('[')[0]}(" in text or not name, each
