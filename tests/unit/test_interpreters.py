"""Other interpreters than the main one, and builds without the GIL: refused, or served, in plain words."""

import sys

import pytest
from support.program import run_python

# CPython names its module for them differently by version.
PRELUDE = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

def words_of_import():
    other = interpreters.create({isolated})
    try:
        outcome = interpreters.{run}(other, "import zerohop")
    except Exception as error:
        outcome = error
    interpreters.destroy(other)
    return str(outcome)
"""
BEFORE = "print(words_of_import()); import zerohop as zh"
AFTER = "import zerohop as zh; print(words_of_import())"
WORKS = """
with zh.Endpoint("soft0") as ep:
    print(ep.empty(8).nbytes)
"""


def how_to_create(isolated: bool) -> str:
    """The arguments that do; 3.13 has names for both kinds, of which the legacy one shares the GIL."""
    if sys.version_info >= (3, 13):
        return repr("isolated" if isolated else "legacy")
    return f"isolated={isolated}"


@pytest.mark.parametrize("order", [BEFORE, AFTER], ids=["before", "after"])
@pytest.mark.parametrize("isolated", [True, False])
def test_a_subinterpreter_is_refused_and_the_main_one_works(order, isolated):
    run = "exec" if sys.version_info >= (3, 13) else "run_string"
    prelude = PRELUDE.format(isolated=how_to_create(isolated), run=run)
    done = run_python("-c", prelude + order + WORKS)
    assert done.returncode == 0, done.stderr
    said, _, rest = done.stdout.rpartition("\n8\n")
    assert "cannot be imported in a subinterpreter" in said
    assert 'multiprocessing.get_context("spawn")' in said
    assert not rest
