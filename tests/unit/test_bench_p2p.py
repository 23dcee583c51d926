"""`zerohop bench p2p` between GPUs and its peers, as far as they go without one: on stand-ins."""

import json
import os
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from support.bench_players import (
    Dies,
    HostCuda,
    HostOurs,
    HostRaw,
    Unfit,
    host_look,
    reported,
    sentences,
)
from zerohop.bench.p2p import peers, plan, suite
from zerohop.bench.p2p.driver import Driver
from zerohop.bench.p2p.peers import Raw
from zerohop.bench.p2p.plan import HALO_NBYTES, HALO_PITCH
from zerohop.bench.plan import GIB, KIB, MIB, Options, Order, PeerFailed


@pytest.fixture
def stand_ins(monkeypatch):
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
def test_every_figure_suite_is_taken_and_absent_ones_are_reported(tmp_path):
    path = tmp_path / "rows.json"
    options = Options(
        "soft0", ("raw", "torch", "nccl"), quick=True, sizes=(8, 64 * KIB), json_path=path
    )
    good, text = reported(suite.make, options)
    assert good, text
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
    for reason in absent.values():
        assert sentences(reason)[:40] in text
    assert "targets" in text
    assert (head["gpus"], head["cuda_driver"], head["dies"]) == (["Host"] * 2, 13000, "1.0")


def test_arenas_of_all_contenders_fit_into_the_fuller_gpu():
    options = Options(peers=("raw", "torch", "nccl"))
    assert plan.gpu_plan(options, 140 * GIB, 2).left_out == ()
    for gpus in (1, 2):
        made = plan.gpu_plan(options, 8 * GIB, gpus)
        arenas = 4 if gpus == 2 else 8
        assert arenas * 2 * max(made.sizes) <= 8 * GIB
        assert GIB in made.left_out


def test_errors_of_the_driver_are_quoted(monkeypatch):
    with pytest.raises(PeerFailed, match=r"cuInit: CUDA error 100 \(made up\)"):
        Driver(HostCuda(cuInit=100))
    with pytest.raises(PeerFailed, match="GPU 0 cannot reach the memory of GPU 1"):
        Raw(None, (0, 1), 64, HostCuda(reachable=False))
    Raw(None, (0, 1), 64, HostCuda(cuCtxEnablePeerAccess=704))  # it is enabled already
    with pytest.raises(PeerFailed, match="cuCtxEnablePeerAccess: CUDA error 217"):
        Raw(None, (0, 1), 64, HostCuda(cuCtxEnablePeerAccess=217))
    monkeypatch.setattr("zerohop.bench.p2p.driver.LIBRARY", "libcuda-of-nobody.so.1")
    with pytest.raises(PeerFailed, match="no NVIDIA driver: "):
        Driver()


def test_a_stream_that_does_not_end_is_not_waited_for_longer_than_said():
    with pytest.raises(PeerFailed, match=r"still busy after 0\.05 s"):
        Driver(HostCuda(busy=True)).gpu(0).stream().wait(0.05)
    Driver(HostCuda()).gpu(0).stream().wait(0.0)


@pytest.fixture
def raw():
    """The player, the driver, and the halves of both sides: from which, to which."""
    cuda = HostCuda()
    player = Raw(None, (0, 1), 2 * MIB, cuda)
    near, far = (np.frombuffer(kept, np.uint8) for kept in cuda.kept)
    near[:MIB] = np.random.default_rng(1).integers(1, 256, MIB, np.uint8)
    cuda.calls.clear()
    return player, cuda, (near[:MIB], near[MIB:]), (far[:MIB], far[MIB:])


def test_raw_copies_what_the_test_says_as_often_as_it_says(raw):
    player, cuda, (source, back), (theirs, target) = raw
    assert player.write(4096, 3) > 0
    assert cuda.calls.count("cuMemcpyPeerAsync") == 3
    assert (target[:4096] == source[:4096]).all()
    assert not target[4096:].any()
    assert len(player.write_latency(8, 5)) == 5
    assert player.post_write(8, 1)["per_call"] > 0
    theirs[:64] = 9
    player.read(64, 1)
    assert (back[:64] == 9).all()
    theirs[:64], target[:64] = 7, 0
    player.both(64, 1)
    assert (back[:64] == 7).all()
    assert (target[:64] == source[:64]).all()


def test_raw_scatters_each_block_to_its_place(raw):
    player, _, (source, _), (_, target) = raw
    player.perform(Order("write_many_64k", "python", MIB, 1))
    assert (target.reshape(16, -1)[plan.places(16)] == source.reshape(16, -1)).all()
    assert sorted(plan.places(16)) == list(range(16)) != list(plan.places(16))


def test_raw_moves_the_first_columns_into_the_last(raw):
    player, _, (source, _), (_, target) = raw
    player.halo(100 * HALO_NBYTES, 1)
    rows, columns = target.reshape(-1, HALO_PITCH), source.reshape(-1, HALO_PITCH)[:100]
    assert (rows[:100, -HALO_NBYTES:] == columns[:, :HALO_NBYTES]).all()
    assert not rows[1:, :-HALO_NBYTES].any()
    assert not rows[100:].any()


def test_torch_that_is_missing_or_sees_no_gpu_is_refused(monkeypatch):
    for name in peers.SAFE:
        monkeypatch.setenv(name, "1")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(PeerFailed, match=r"torch cannot be imported \(.*\): pip install torch"):
        peers.torch_with_gpus()
    blind = SimpleNamespace(__version__="2.9", cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", blind)
    with pytest.raises(PeerFailed, match=r"PyTorch 2\.9 sees no GPU"):
        peers.torch_with_gpus()
    for name in ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST"):
        assert os.environ[name] == str(int(name.startswith("TORCH")))  # multicast stays off
