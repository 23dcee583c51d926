"""Whose turn it is not is stopped: its processes take no processor, survive that, and are not left behind."""

import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.bench_players import Hangs
from support.launchers import needs
from support.link import until
from support.program import run_python
from zerohop.bench import placement
from zerohop.bench.idle import Idle
from zerohop.bench.pair import Pair
from zerohop.bench.peers import mpi
from zerohop.bench.placement import APART, FREE, TOGETHER, usable_cores
from zerohop.bench.plan import Order
from zerohop.bench.rows import OURS
from zerohop.bench.workers import Player, Workers
from zerohop.local import Link, RankFailed

LOST_S = 4.0  # of silence: more than it takes to declare a process lost
KILLED_PARENT = """
import os, signal
from zerohop.bench.workers import Workers
from tests_player import Where

if __name__ == "__main__":
    contender = Workers("x", 2, Where)
    contender.facts()
    contender.pause()
    print(*contender.start().pids, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Where(Player):
    """A player that says where it may run."""

    def __init__(self, link: Link) -> None: ...

    def facts(self) -> dict[str, list[int]]:
        return {"cores": sorted(os.sched_getaffinity(0))}


def state(pid: int) -> str:
    """As of /proc/<pid>/stat: T is stopped, Z ended; X: gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def come_to(states: str, pids: Iterable[int]) -> None:
    """All, within the time that a busy machine needs."""
    until(lambda: all(state(pid) in states for pid in pids), f"all come to {states}", 20)


def test_workers_stop_and_go_on_in_the_place_they_were_given():
    for where in (TOGETHER, APART):
        contender = Workers("x", 2, Where)
        pids = contender.start(where).pids
        cores = usable_cores()
        found = [answer["cores"] for answer in contender.ask("facts")]
        assert found == [[cores[rank % len(cores) if where == APART else 0]] for rank in (0, 1)]
        contender.pause()
        come_to("T", pids)
        contender.resume()
        contender.finish()
        contender.pause()  # nobody is there any more


def test_ranks_of_mpi_stop_and_go_on():
    needs(commands=("mpirun",), modules=("mpi4py",))
    player = mpi.contender(2, 0)
    player.start()
    player.facts()
    pids = player.start().pids
    player.pause()
    come_to("T", pids)
    player.resume()
    assert player.measure(Order("barrier", "python", 0, 4), 0.1)["p50"] > 0
    player.pause()
    player.close()
    come_to("ZX", pids)


def test_processes_of_ours_outlive_a_stop_longer_than_it_takes_to_be_lost():
    contenders = [Workers(OURS, 2, Pair, "soft0", 1 << 16, p2p) for p2p in (0, 1)]
    order = Order("latency", "python", 8, 10)
    for each in contenders:
        each.measure(order, 0.1)
        each.pause()
    time.sleep(LOST_S)
    for each in contenders:
        each.resume()
        assert each.measure(order, 0.1)["p50"] > 0
        each.finish()


def test_who_is_stopped_when_the_benchmark_is_killed_is_killed_too(tmp_path):
    (tmp_path / "tests_player.py").write_text(Path(__file__).read_text())
    program = tmp_path / "killed.py"
    program.write_text(KILLED_PARENT)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = run_python(program, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    come_to("ZX", pids)


def test_idle_peers_are_counted_in_new_processes_every_time():
    contender = Workers(OURS, 2, Idle, "soft0", anew=True)
    order = Order("idle_peers_3", "cpp", 0, 3)
    pids = set(contender.start().pids)
    assert contender.measure(order, 0.0).keys() == {"rss_per_peer"}
    assert not pids & set(contender.start().pids)
    assert contender.measure(order, 0.0).keys() == {"rss_per_peer"}


def test_ends_are_placed_on_cores_first_and_on_their_other_threads_then(tmp_path, monkeypatch):
    for cpu, siblings in enumerate(("0,2", "1,3", "0,2", "1,3", "4-5", "4-5")):
        folder = tmp_path / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(7)))
    assert placement.usable_cores(tmp_path) == [0, 1, 4, 6, 2, 3, 5]
    placed: list[set[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: placed.append(set(cores)))
    monkeypatch.setattr(placement, "usable_cores", lambda: [0, 4])
    for place in (APART, TOGETHER, FREE):
        for rank in range(3):
            placement.place(place, rank)
    assert placed == [{0}, {4}, {0}, {0}, {0}, {0}]


def test_a_peer_that_hangs_is_ended_after_its_bound():
    peer = Workers("nccl", 2, Hangs)
    assert peer.ask("facts") == [{"dies": "1.0"}] * 2
    pids = peer._ranks.pids
    peer._ranks._silence = 1.0  # from here on, when its processes are there
    with pytest.raises(RankFailed, match="no message from rank 0, 1 for 1 s"):
        peer.ask(Order("write", "python", 8, 1))
    peer.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
