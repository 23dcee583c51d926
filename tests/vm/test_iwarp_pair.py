"""The contract suite between two hosts over siw0, as test_contract_pair.py has it on rxe0."""

import pytest

from vm import selection
from vm.suite import check_both_had_a_part, check_file, results_between_two_guests

SELECTION = selection.between_two_guests("siw0")


@pytest.fixture(scope="module")
def results():
    with results_between_two_guests(SELECTION) as found:
        yield found


@pytest.mark.timeout(SELECTION.seconds + 600)
@pytest.mark.parametrize("file", SELECTION.files, ids=lambda path: path.stem)
def test_between_two_guests(results, file):
    check_file(results, file)


def test_both_guests_had_a_part(results):
    check_both_had_a_part(results)
