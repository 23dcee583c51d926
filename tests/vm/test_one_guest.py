"""The contract suite on Soft-RoCE: libibverbs, the kernel's RDMA stack, the device rxe0.

One run of pytest in one guest; each of its files is one test here. selection.py says which cases.
"""

import pytest

from vm import selection
from vm.suite import check_file, results_in_one_guest

SELECTION = selection.in_one_guest("rxe0")


@pytest.fixture(scope="module")
def results():
    with results_in_one_guest(SELECTION) as found:
        yield found


@pytest.mark.timeout(SELECTION.seconds + 600)
@pytest.mark.parametrize("file", SELECTION.files, ids=lambda path: path.stem)
def test_on_rxe0(results, file):
    check_file(results, file)


def test_what_is_left_out_exists(repository):
    """A case that was renamed would run again unnoticed."""
    tables = (selection.LEFT_OUT, selection.OF_ONE_HOST, selection.NOT_ON_IWARP)
    for names in (names for table in tables for names in table.values()):
        for each in names:
            file, _, name = each.partition("::")
            text = (repository / selection.CONTRACT / file).read_text()
            assert f"def {name.partition('[')[0]}(" in text or not name, each
