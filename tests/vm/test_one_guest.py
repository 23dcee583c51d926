"""The contract suite on Soft-RoCE (the device rxe0) and on Soft iWARP (siw0): libibverbs, the kernel's RDMA stack.

One run of pytest in one guest for each device; each of its files is one test here. selection.py says which cases.
"""

import pytest

from vm import selection
from vm.suite import check_file, results_in_one_guest

SELECTIONS = {device: selection.in_one_guest(device) for device in selection.DEVICES}


@pytest.fixture(scope="module")
def rxe0():
    return results_in_one_guest(SELECTIONS["rxe0"])


@pytest.fixture(scope="module")
def siw0():
    return results_in_one_guest(SELECTIONS["siw0"])


@pytest.mark.timeout(max(each.seconds for each in SELECTIONS.values()) + 600)
@pytest.mark.parametrize(("device", "file"), selection.cases(SELECTIONS))
def test_in_one_guest(request, device, file):
    check_file(request.getfixturevalue(device), file)


def test_what_is_left_out_exists(repository):
    """A case that was renamed would run again unnoticed."""
    tables = (selection.LEFT_OUT, selection.OF_ONE_HOST, selection.NOT_ON_IWARP)
    for names in (names for table in tables for names in table.values()):
        for each in names:
            file, _, name = each.partition("::")
            text = (repository / selection.CONTRACT / file).read_text()
            assert f"def {name.partition('[')[0]}(" in text or not name, each
