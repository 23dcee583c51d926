"""Random programs of collectives, on several groups at once: each gives what NumPy makes of the same arrays, and gloo and MPI too.

`make test` runs $ZEROHOP_TEST_PROGRAMS of them (1000), from $ZEROHOP_TEST_PROGRAMS_SEED (1) on. One that fails is made smaller, and shown
with the command that runs it again.
"""

import os
from typing import Any

import hypothesis
import pytest
from support.launchers import PATIENCE, mpirun, needs
from support.patience import SLOW
from support.programs.crew import Crew
from support.programs.mpi_groups import GROUPS, RANKS
from support.programs.rank import SIZE, groups
from support.programs.strategies import programs
from support.spawned import environment_of

COUNT = int(os.environ.get("ZEROHOP_TEST_PROGRAMS", "0")) or int(1000 / SLOW)
SEED = int(os.environ.get("ZEROHOP_TEST_PROGRAMS_SEED", "1"))


def settings(count: int, **more: Any) -> hypothesis.settings:
    checks = list(hypothesis.HealthCheck)
    return hypothesis.settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=checks, **more
    )


@pytest.fixture
def crew():
    made = Crew()
    yield made
    made.close()


@pytest.mark.timeout(700)  # of which hypothesis takes up to 300 to make one smaller
def test_random_programs(crew):
    @hypothesis.seed(SEED)
    @settings(COUNT)
    @hypothesis.given(programs(groups(), SIZE))
    def run(program):
        crew.run(program)

    run()


@pytest.mark.timeout(PATIENCE)
def test_programs_that_mpi_runs_too(tmp_path):
    """By Open MPI: MPICH 4.0 reduces large arrays wrongly in its Reduce_scatter."""
    needs(modules=("mpi4py",))
    lines = []

    @hypothesis.seed(SEED)
    @settings(max(1, COUNT // 10), phases=[hypothesis.Phase.generate])
    @hypothesis.given(programs(GROUPS))
    def add(program):
        lines.append(repr(program))

    add()
    path = tmp_path / "programs"
    path.write_text("\n".join(lines))
    module = ("-m", "support.programs.mpi_rank", str(path))
    paths = environment_of()["PYTHONPATH"]
    done = mpirun("openmpi", RANKS, tmp_path, *module, PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{len(lines)} programs\n"
