"""The contract suite on a simulated adapter: one run of pytest; each of its files is one test here."""

import sys

import pytest
from vm.report import parse_junit
from vm.suite import check_file

from mlx5 import selection
from mlx5.simulation import finish, simulation

CHOSEN = selection.chosen()


@pytest.fixture(scope="module")
def results(repository, tmp_path_factory):
    found = tmp_path_factory.mktemp("contract") / "junit.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"]
    command += ["-p", "no:cacheprovider", f"--junitxml={found}", *CHOSEN.options]
    files = [repository / file for file in CHOSEN.files]
    with simulation() as adapters:
        run = adapters.start(*command, *files, **selection.ENVIRONMENT)
        with run:
            try:
                print(finish(run, CHOSEN.seconds))
            except AssertionError as failed:  # its tests, as reported below
                print(failed)
    return parse_junit(found.read_text())


@pytest.mark.timeout(CHOSEN.seconds + 60)
@pytest.mark.parametrize("file", CHOSEN.files, ids=lambda path: path.stem)
def test_on_mlx5sim0(results, file):
    check_file(results, file)


def test_a_run_in_a_hurry_is_part_of_the_whole(repository):
    """A file that was renamed would be left out unnoticed."""
    for name in selection.QUICK:
        assert (repository / "tests/contract" / name).exists(), name
