"""The contract suite on Soft iWARP, the device siw0, as test_one_guest.py has it on rxe0."""

import pytest

from vm import selection
from vm.suite import check_file, results_in_one_guest

SELECTION = selection.in_one_guest("siw0")


@pytest.fixture(scope="module")
def results():
    with results_in_one_guest(SELECTION) as found:
        yield found


@pytest.mark.timeout(SELECTION.seconds + 600)
@pytest.mark.parametrize("file", SELECTION.files, ids=lambda path: path.stem)
def test_on_siw0(results, file):
    check_file(results, file)
