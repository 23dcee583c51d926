"""Whose turn it is not is stopped: its processes take no processor, survive that, and are not left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.launchers import needs
from support.patience import patient
from zerohop.bench.idle import Idle
from zerohop.bench.peers import mpi
from zerohop.bench.placement import APART, TOGETHER, usable_cores
from zerohop.bench.plan import Order
from zerohop.bench.turns import OURS, Contestant
from zerohop.bench.worker import Pair
from zerohop.local import Link

LOST_S = 4.0  # of silence: more than it takes to declare a process lost
KILLED_PARENT = """
import os, signal
from zerohop.bench.turns import Contestant
from tests_player import Where

if __name__ == "__main__":
    contestant = Contestant("x", 2, 60.0, Where)
    contestant.facts()
    contestant.pause()
    print(*contestant.start().pids, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Where:
    """A player that says where it may run."""

    def __init__(self, link: Link) -> None: ...

    def facts(self) -> dict[str, list[int]]:
        return {"cores": sorted(os.sched_getaffinity(0))}

    def close(self) -> None: ...


def state(pid: int) -> str:
    """As of /proc/<pid>/stat: T is stopped, Z ended; X: gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def come_to(states: str, pids: Iterable[int]) -> bool:
    """Whether all come to one of these states within the time that a busy machine needs."""
    until = time.monotonic() + patient(20)
    while not (good := all(state(pid) in states for pid in pids)) and time.monotonic() < until:
        time.sleep(0.01)
    return good


def test_workers_stop_and_go_on_in_the_place_they_were_given() -> None:
    for placement in (TOGETHER, APART):
        contestant = Contestant("x", 2, 60.0, Where, placement=placement)
        pids = contestant.start().pids
        cores = usable_cores()
        found = [answer["cores"] for answer in contestant.ask("facts")]
        assert found == [[cores[rank % len(cores) if placement == APART else 0]] for rank in (0, 1)]
        contestant.pause()
        assert come_to("T", pids)
        contestant.resume()
        contestant.finish()
        contestant.pause()  # nobody is there any more


def test_ranks_of_mpi_stop_and_go_on() -> None:
    needs(commands=("mpirun",), modules=("mpi4py",))
    player = mpi.Mpi(60.0, ("zerohop.bench.peers.mpi_job",))
    player.start()
    player.facts()
    pids = [rank.pid for rank in player._ranks]
    player.pause()
    assert come_to("T", pids)
    player.resume()
    assert player.measure(Order("barrier", "python", 0, 4), 0.1)["p50"] > 0
    player.pause()
    player.close()
    assert come_to("ZX", pids)


@pytest.mark.parametrize("p2p", [0, 1])
def test_two_processes_of_ours_outlive_a_stop_longer_than_it_takes_to_be_lost(p2p: int) -> None:
    contestant = Contestant(OURS, 2, 60.0, Pair, "soft0", 1 << 16, p2p)
    order = Order("latency", "python", 8, 10)
    contestant.measure(order, 0.1)
    contestant.pause()
    time.sleep(LOST_S)
    contestant.resume()
    assert contestant.measure(order, 0.1)["p50"] > 0
    contestant.finish()


def test_who_is_stopped_when_the_benchmark_is_killed_is_killed_too(tmp_path: Path) -> None:
    (tmp_path / "tests_player.py").write_text(Path(__file__).read_text())
    program = tmp_path / "killed.py"
    program.write_text(KILLED_PARENT)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    assert come_to("ZX", pids)


def test_idle_peers_are_counted_in_new_processes_every_time() -> None:
    contestant = Contestant(OURS, 2, 60.0, Idle, "soft0", anew=True)
    order = Order("idle_peers_3", "cpp", 0, 3)
    pids = set(contestant.start().pids)
    assert contestant.measure(order, 0.0).keys() == {"rss_per_peer"}
    assert not pids & set(contestant.start().pids)
    assert contestant.measure(order, 0.0).keys() == {"rss_per_peer"}
