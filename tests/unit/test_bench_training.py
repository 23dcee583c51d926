"""`zerohop bench train`, with a small model, and what `zerohop bench gpu-collectives` says and reports where it cannot measure."""

import json
from dataclasses import replace

import pytest
from support.bench_players import reported
from zerohop import _core
from zerohop.bench import gpu_collectives, train
from zerohop.bench.plan import KIB, MIB, Options, PeerFailed
from zerohop.bench.rows import OURS, Row


@pytest.mark.timeout(300)
def test_a_step_of_ddp_and_fsdp2_beside_gloo(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    small = replace(train.ON_CPUS, width=64, layers=2, words=20, batch=1, length=4)
    monkeypatch.setattr(train, "ON_CPUS", small)
    monkeypatch.setattr(train, "QUICK_SECONDS", 0.01)
    path = tmp_path / "rows.json"
    good, text = reported(train.make, Options("soft0", ("gloo", "nccl"), True, None, path))
    assert good, text
    _, *rows = json.loads(path.read_text())
    medians = {(r["test"], r["impl"]) for r in rows if r["metric"] == "p50" and r["value"] > 0}
    assert medians == {(test, name) for test in ("ddp", "fsdp2") for name in (OURS, "gloo")}
    assert "NCCL needs a GPU for each rank" in text
    assert "DistributedDataParallel" in text
    assert "fully_shard" in text


@pytest.mark.skipif(_core.gpu_count() > 0, reason="it would measure the GPU")
def test_without_a_gpu_it_says_what_measures_host_arrays():
    with pytest.raises(PeerFailed, match="zerohop bench collectives measures"):
        gpu_collectives.make(Options())


def test_targets_of_two_gpus_and_the_bus_bandwidth():
    def row(call: str, nbytes: int, seconds: float, impl: str = OURS) -> Row:
        place = ("gpu-collectives", f"{call}_2", "p2p", "soft0", "cuda:0, cuda:1", "python")
        return Row(*place, nbytes, impl, "p50", seconds, "s")

    rows = [row("all_reduce", 8, 4e-6), row("all_reduce", 32 * KIB, 7e-6)]
    rows += [row("all_gather", 256 * MIB, 1e-3), row("all_gather", 256 * MIB, 0.9e-3, "nccl")]
    part = gpu_collectives.report(rows, gpu_collectives.TWO_GPUS)
    found = {verdict.target: verdict for verdict in part.judged}
    assert len(found) == 2
    small, gathered = found.values()
    assert (small.met, gathered.met) == (False, False)
    assert "7 us at 32 KiB" in small.measured
    assert gathered.measured.startswith("0.9 ")
