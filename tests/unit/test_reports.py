"""Failures that cannot be raised reach Python as warnings."""

import time
import warnings

import pytest
from support.program import run_python
from zerohop import _core

DEADLINE = 5.0  # seconds; a pending call runs between two bytecodes of the main thread


def warnings_after(sentence: str) -> list[str]:
    """The warnings that one report becomes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _core.report(sentence)
        end = time.monotonic() + DEADLINE
        while not caught and time.monotonic() < end:
            pass
    assert {w.category for w in caught} == {RuntimeWarning}
    return [str(w.message) for w in caught]


def test_report_becomes_a_warning():
    assert warnings_after("a sentence") == ["a sentence"]


@pytest.mark.parametrize("length", [255, 256, 5000])
def test_long_sentences_are_cut(length):
    assert warnings_after("x" * length) == ["x" * min(length, 255)]


def test_report_at_exit_goes_to_stderr():
    code = """
import atexit
from zerohop import _core
atexit._run_exitfuncs()
_core.report("too late for a warning")
"""
    assert run_python("-c", code).stderr == "zerohop: too late for a warning\n"
