"""`zerohop bench p2p` between GPUs, as far as it goes without one: on stand-ins."""

import json
import os
import re
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from rich.console import Console
from support.bench_players import (
    Dies,
    Hangs,
    HostOurs,
    HostRaw,
    LateOurs,
    Unfit,
    host_look,
    sentences,
)
from zerohop.bench.p2p import between_gpus, plan, torch_ipc
from zerohop.bench.peer import PeerFailed
from zerohop.bench.plan import GIB, KIB, Options, Order
from zerohop.bench.turns import Absences, Contestant
from zerohop.cli import main
from zerohop.local import RankFailed


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two "GPUs" in host memory, and little to move; of the peers, torch is unfit, and nccl dies."""
    for module in (plan, between_gpus):
        monkeypatch.setattr(module, "BLOCKS_NBYTES", 256 * KIB)
        monkeypatch.setattr(module, "HALO_TOTAL", 16 * plan.HALO_NBYTES)
    short = replace(
        plan.gpu_plan(Options(sizes=(8, 64 * KIB), quick=True), GIB, 2),
        seconds=0.01,
        rounds=1,
        mapping_nbytes=256 * KIB,
    )
    monkeypatch.setattr(between_gpus, "gpu_plan", lambda *arguments: short)
    monkeypatch.setattr(between_gpus._core, "gpu_count", lambda: 2)
    monkeypatch.setattr(between_gpus, "look", host_look)
    monkeypatch.setattr(between_gpus, "Ours", HostOurs)
    monkeypatch.setitem(between_gpus.MAKERS, "raw", (HostRaw, 1))
    monkeypatch.setitem(between_gpus.MAKERS, "torch", (Unfit, 2))
    monkeypatch.setitem(between_gpus.MAKERS, "nccl", (Dies, 2))


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("stand_ins")
def test_every_figure_between_gpus_is_taken_and_absent_ones_are_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    options = Options(
        "soft0", ("raw", "torch", "nccl"), quick=True, sizes=(8, 64 * KIB), json_path=path
    )
    console = Console(file=StringIO(), width=200)
    assert between_gpus.run(options, console), console.file.getvalue()
    head, *rows = json.loads(path.read_text())
    ours = {(r["test"], r["metric"], r["nbytes"]) for r in rows if r["impl"] == "zerohop"}
    assert ours >= {("write_latency", "p50", n) for n in (8, 64 * KIB)}
    assert ours >= {
        (test, "bandwidth", n) for test in ("write", "read", "both") for n in (8, 64 * KIB)
    }
    assert ours >= {(test, "bandwidth", 256 * KIB) for test in plan.BLOCK_TESTS}
    assert ours >= {("halo", "bandwidth", 1024), ("post_write", "per_call", 8)}
    assert ours >= {("mapping", m, 256 * KIB) for m in ("first", "cached", "cached_error")}
    raw = {(r["test"], r["metric"], r["nbytes"]) for r in rows if r["impl"] == "raw"}
    assert raw == {figure for figure in ours if figure[0] != "mapping"}
    assert all(r["value"] > 0 for r in rows if r["test"] != "mapping")
    assert {r["impl"] for r in rows} == {"zerohop", "raw"}
    absent = {(a["impl"], a["test"]): a["reason"] for a in head["not_available"]}
    assert absent["zerohop", "stream_notify"] == "not available: no streams on this host"
    assert absent["torch", ""] == "PyTorch is made up"
    assert re.match("from write on: rank 1 exited with status 3", absent["nccl", ""])
    assert "did not let go" in absent["raw", "its orderly end"]
    text = sentences(console.file.getvalue())
    for reason in absent.values():
        assert sentences(reason)[:40] in text
    assert "targets" in text
    assert (head["gpus"], head["cuda_driver"], head["dies"]) == (["Host"] * 2, 13000, "1.0")


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("stand_ins")
def test_a_figure_of_ours_that_fails_is_told_and_the_rest_is_measured(monkeypatch) -> None:
    monkeypatch.setattr(between_gpus, "Ours", LateOurs)
    console = Console(file=StringIO(), width=200)
    assert not between_gpus.run(Options("soft0", ("raw",), quick=True), console)
    text = sentences(console.file.getvalue())
    said = "rank 0: TransferTimeout: slot 2 did not come"
    assert f"zerohop bench failed: stream_notify: {said}" in text
    assert f"zerohop stream_notify {said}" in text  # in the table of what is not available
    assert "raw its orderly end" in text
    assert "standard error of that difference" in text
    assert re.search("stream to stream, one way <= 4.5 us not measured", text)


def test_torch_that_is_missing_or_sees_no_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in torch_ipc.SAFE:
        monkeypatch.setenv(name, "1")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(PeerFailed, match=r"not installed \(.*\): pip install torch"):
        torch_ipc.torch_with_gpus()
    blind = SimpleNamespace(__version__="2.9", cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", blind)
    with pytest.raises(PeerFailed, match=r"PyTorch 2\.9 sees no GPU"):
        torch_ipc.torch_with_gpus()
    assert os.environ["NCCL_NVLS_ENABLE"] == "0"  # multicast stays off, whatever was set
    assert os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] == "1"


@pytest.mark.usefixtures("stand_ins")
def test_with_one_gpu_nccl_is_told_to_be_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(peers=("nccl",))
    absences = Absences()
    between_gpus.entrants(options, (0, 0), 64, absences)
    assert (
        absences.reasons["nccl", ""] == "NCCL takes one process per GPU, and there is one GPU here"
    )


def test_a_peer_that_hangs_is_ended_after_its_bound() -> None:
    peer = Contestant("nccl", 2, 60.0, Hangs)
    assert peer.ask("facts") == [{"dies": "1.0"}] * 2
    pids = peer._ranks.pids
    peer._ranks._silence = 1.0  # from here on, when its processes are there
    with pytest.raises(RankFailed, match="no word from rank 0, 1 for 1 s"):
        peer.ask(Order("write", "python", 8, 1))
    peer.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_without_a_gpu_the_command_says_so_and_what_host_does(monkeypatch) -> None:
    monkeypatch.setattr(between_gpus._core, "gpu_count", lambda: 0)
    result = CliRunner().invoke(main, ["bench", "p2p"])
    assert result.exit_code == 1
    assert "No GPU is visible to the driver" in result.output
    assert "zerohop bench host measures between host arrays" in result.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["p2p", "--vs", "raw,iperf4"], "'iperf4' is none of nccl, torch, raw, all"),
        (["p2p", "--sizes", "1T"], "'1T' is not a size from 8 to 1G"),
        (["p2p", "--plot", "x.jpeg"], "'x.jpeg' does not end in .png, .svg, .pdf"),
        (["soft", "--plot", "x.png"], "pip install 'zerohop[plot]'"),
        (["soft", "--plot", "nowhere/x.png"], "'nowhere' cannot be written to"),
        (["p2p", "--json", "nowhere/x.json"], "'nowhere' cannot be written to"),
    ],
)
def test_wrong_arguments_are_refused(arguments, complaint, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # not installed
    result = CliRunner().invoke(main, ["bench", *arguments])
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())
