"""What the calls that programs make most often cost, with a tenth to spare: who makes one dearer says so here."""

import sys

import pytest
from support.instructions import measure
from support.launchers import needs

MOST = {
    "write of 8 B, p2p": 2110,
    "write of 8 B, soft0": 4050,
    "notify, p2p": 1720,  # 1644: which sources are compiled together decides what is inlined
    "notify, soft0": 3820,
    "wait of a Transfer that is done, p2p": 110,  # 59, and what empty calls cost more at times
    "wait_notify of a value that is there, p2p": 1100,
}


@pytest.fixture(scope="module")
def counted():
    needs(commands=("valgrind", "cc"))
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the figures are of CPython 3.11")
    return measure()


@pytest.mark.parametrize("name", MOST)
def test_a_call_costs_no_more(counted, name):
    assert counted[name] <= MOST[name]
