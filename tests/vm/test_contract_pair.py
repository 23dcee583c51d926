"""The contract suite between two hosts: the tests run in guest a, their partners in guest b, over rxe0.

selection.py says which cases. Partners are started by support.far, over the wire they are about.
"""

import pytest

from vm import selection
from vm.suite import check_both_had_a_part, check_file, results_between_two_guests

SELECTION = selection.between_two_guests("rxe0")


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
