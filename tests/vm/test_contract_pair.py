"""The contract suite between two hosts, over rxe0 and over siw0: the tests run in guest a, their partners in guest b.

selection.py says which cases. Partners are started by support.far, over the wire they are about.
"""

import pytest

from vm import selection
from vm.suite import check_both_had_a_part, check_file, results_between_two_guests

SELECTIONS = {device: selection.between_two_guests(device) for device in selection.DEVICES}


@pytest.fixture(scope="module")
def rxe0():
    return results_between_two_guests(SELECTIONS["rxe0"])


@pytest.fixture(scope="module")
def siw0():
    return results_between_two_guests(SELECTIONS["siw0"])


@pytest.mark.timeout(max(each.seconds for each in SELECTIONS.values()) + 600)
@pytest.mark.parametrize(("device", "file"), selection.cases(SELECTIONS))
def test_between_two_guests(request, device, file):
    check_file(request.getfixturevalue(device), file)


@pytest.mark.timeout(max(each.seconds for each in SELECTIONS.values()) + 600)
@pytest.mark.parametrize("device", SELECTIONS)
def test_both_guests_had_a_part(request, device):
    check_both_had_a_part(request.getfixturevalue(device))
