"""The contract suite between two hosts: the tests run in guest a, their partners in guest b, over rxe0.

selection.py says which cases. Partners are started by support.far, over the wire they are about.
"""

from pathlib import Path

import pytest

from vm import selection
from vm.pair import Pair
from vm.suite import SLOW, check_file, run_selection

SELECTION = selection.between_two_guests()
PORT = 7717  # of the server that starts partners in guest b
TESTS = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def results():
    with Pair(wires=1) as pair:
        host = pair.wires[0].address(1)
        server = pair.b.start(
            [pair.b.machine.python, "-m", "support.far", host, PORT],
            env={"ZEROHOP_TEST_SLOW": SLOW},
            cwd=TESTS,
        )
        server.expect("listening", timeout=180)  # the first import reads every file through 9p
        found = run_selection(pair.a, SELECTION, ZEROHOP_TEST_FAR=f"{host}:{PORT}")
        assert not server.ended, server.report()
        yield found


@pytest.mark.timeout(SELECTION.seconds + 600)
@pytest.mark.parametrize("file", SELECTION.files, ids=lambda path: path.stem)
def test_between_two_guests(results, file):
    check_file(results, file)


def test_both_guests_had_a_part(results):
    """Every case named its far partner, or had but a process, which was far as well."""
    assert results
    ran = [result for result in results if result.outcome == "passed"]
    assert [result for result in ran if "far" in result.name]
    assert not [result for result in ran if "-thread" in result.name or "-process" in result.name]
