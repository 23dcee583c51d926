"""The contract suite between two hosts, over rxe0 and over siw0: the tests run in guest a, their partners in guest b.

selection.py says which cases. Partners are started by support.far, over the wire they are about.
"""

import pytest

from vm import selection
from vm.suite import check_both_had_a_part, check_file, results_between_two_guests

SELECTIONS = {device: selection.between_two_guests(device) for device in selection.DEVICES}


@pytest.fixture(scope="module")
def results(request):
    with results_between_two_guests(SELECTIONS[request.param]) as found:
        yield found
    check_both_had_a_part(found)


@pytest.mark.timeout(max(each.seconds for each in SELECTIONS.values()) + 600)
@pytest.mark.parametrize(("results", "file"), selection.cases(SELECTIONS), indirect=["results"])
def test_between_two_guests(results, file):
    check_file(results, file)
