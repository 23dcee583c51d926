"""`zerohop bench p2p` between GPUs, as far as it goes without one: on stand-ins."""

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from support.bench_players import (
    Dies,
    HostOurs,
    HostRaw,
    LateOurs,
    Unfit,
    host_look,
    sentences,
)
from zerohop.bench.p2p import plan, suite
from zerohop.bench.plan import GIB, KIB, Options
from zerohop.bench.runner import run_suite


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two "GPUs" in host memory, and little to move; of the peers, torch is unfit, and nccl dies."""
    monkeypatch.setattr(plan, "BLOCKS_NBYTES", 256 * KIB)
    monkeypatch.setattr(plan, "HALO_TOTAL", 16 * plan.HALO_NBYTES)
    monkeypatch.setattr("zerohop.bench.plan.QUICK_SECONDS", 0.01)
    monkeypatch.setattr(suite._core, "gpu_count", lambda: 2)
    monkeypatch.setattr(suite, "look", host_look)
    monkeypatch.setattr(suite, "Ours", HostOurs)
    monkeypatch.setitem(suite.PEERS, "raw", (HostRaw, 1, ""))
    monkeypatch.setitem(suite.PEERS, "torch", (Unfit, 2, ""))
    monkeypatch.setitem(suite.PEERS, "nccl", (Dies, 2, ""))


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("stand_ins")
def test_every_figure_suite_is_taken_and_absent_ones_are_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    options = Options(
        "soft0", ("raw", "torch", "nccl"), quick=True, sizes=(8, 64 * KIB), json_path=path
    )
    console = Console(file=StringIO(), width=200)
    assert run_suite(suite.make, options, console), console.file.getvalue()
    head, *rows = json.loads(path.read_text())
    ours = {(r["test"], r["metric"], r["nbytes"]) for r in rows if r["impl"] == "zerohop"}
    assert ours >= {("write_latency", "p50", n) for n in (8, 64 * KIB)}
    assert ours >= {
        (test, "bandwidth", n) for test in ("write", "read", "both") for n in (8, 64 * KIB)
    }
    assert ours >= {(test, "bandwidth", 256 * KIB) for test in plan.BLOCK_TESTS}
    assert ours >= {("halo", "bandwidth", 1024), ("post_write", "per_call", 8)}
    raw = {(r["test"], r["metric"], r["nbytes"]) for r in rows if r["impl"] == "raw"}
    assert raw == ours
    assert all(r["value"] > 0 for r in rows)
    assert {r["impl"] for r in rows} == {"zerohop", "raw"}
    absent = {(a["impl"], a["test"]): a["reason"] for a in head["not_available"]}
    assert absent["zerohop", "stream_notify"] == "not available: no streams on this host"
    assert absent["torch", ""] == "PyTorch is made up"
    assert re.match("from write on: rank 1 exited with status 3", absent["nccl", ""])
    assert "did not let go" in absent["raw", "its shutdown"]
    text = sentences(console.file.getvalue())
    for reason in absent.values():
        assert sentences(reason)[:40] in text
    assert "targets" in text
    assert (head["gpus"], head["cuda_driver"], head["dies"]) == (["Host"] * 2, 13000, "1.0")


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("stand_ins")
def test_a_figure_of_ours_that_fails_is_told_and_the_rest_is_measured(monkeypatch) -> None:
    monkeypatch.setattr(suite, "Ours", LateOurs)
    console = Console(file=StringIO(), width=200)
    assert not run_suite(suite.make, Options("soft0", ("raw",), True, (8, 64 * KIB)), console)
    text = sentences(console.file.getvalue())
    said = "rank 0: TransferTimeout: slot 2 did not come"
    assert f"zerohop bench failed: stream_notify: {said}" in text
    assert f"zerohop stream_notify {said}" in text  # in the table of what is not available
    assert "raw its shutdown" in text
    assert re.search("stream_notify one way of 8 B to 4 KiB <= 4.5 us not measured", text)


def test_arenas_of_all_contenders_fit_into_the_fuller_gpu() -> None:
    options = Options(peers=("raw", "torch", "nccl"))
    assert plan.gpu_plan(options, 140 * GIB, 2).left_out == ()
    for gpus in (1, 2):
        made = plan.gpu_plan(options, 8 * GIB, gpus)
        arenas = 4 if gpus == 2 else 8
        assert arenas * 2 * max(made.sizes) <= 8 * GIB
        assert GIB in made.left_out


def test_an_arena_holds_what_every_test_moves() -> None:
    small = plan.gpu_plan(Options(sizes=(8,)), 140 * GIB, 2)
    half = plan.arena_nbytes(small) // 2
    assert half >= max(plan.BLOCKS_NBYTES, 8192 * plan.HALO_PITCH)
    assert [plan.BLOCKS_NBYTES // block for block in plan.BLOCK_TESTS.values()] == [
        16384,
        4096,
        1024,
    ]
