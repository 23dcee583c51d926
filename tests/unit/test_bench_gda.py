"""`zerohop bench gda`, as far as it goes without a GPU: on stand-ins."""

import json
import re
import sys
from pathlib import Path

import pytest
from support.bench_players import host_look, reported
from support.gda_players import HostNvshmem, HostOurs, stand_in_home, stand_in_nvcc
from zerohop.bench.gda import nvshmem, plan, suite
from zerohop.bench.gda.kernels import Kernels
from zerohop.bench.p2p import suite as p2p
from zerohop.bench.plan import KIB, MIB, Options, PeerFailed


@pytest.fixture
def stand_ins(monkeypatch, tmp_path):
    """Two "GPUs", kernels that take made-up times, and an NVSHMEM that moves nothing: its home."""
    monkeypatch.setattr(p2p._core, "gpu_count", lambda: 2)
    monkeypatch.setattr(p2p, "look", host_look)
    monkeypatch.setattr(suite, "Ours", HostOurs)
    monkeypatch.setattr(suite, "Nvshmem", HostNvshmem)
    home = stand_in_home(tmp_path)
    monkeypatch.setenv("NVSHMEM_HOME", str(home))
    monkeypatch.setenv("NVSHMEM_DISABLE_NVLS", "0")  # which the stand-in would refuse
    monkeypatch.setenv("CUDA_HOME", str(stand_in_nvcc(tmp_path, home)))
    return home


@pytest.mark.usefixtures("stand_ins")
def test_every_figure_is_taken_beside_its_peers(tmp_path):
    path = tmp_path / "rows.json"
    options = Options("soft0", ("nvshmem",), quick=True, json_path=path, rings=True)
    good, text = reported(suite.make, options)
    assert good, text
    head, *rows = json.loads(path.read_text())
    values = {(r["impl"], r["test"], r["metric"], r["nbytes"]): r["value"] for r in rows}
    assert len(values) == len(rows)  # the medians alone
    mine = {(test, metric, n) for impl, test, metric, n in values if impl == "zerohop"}
    assert mine >= {("put_notify", "one_way", n) for n in (8, 4 * KIB, 64 * KIB)}
    assert mine >= {("put_notify_both", "one_way", 8)}
    assert mine >= {(f"{t}_{s}", "rate", 8) for t in ("puts", "values") for s in plan.SHAPES}
    assert mine >= {("host_puts_python", "rate", 8), ("host_puts_cpp", "rate", 8)}
    assert mine >= {(f"entries_direct_{n}", m, 8) for n in (1, 32, 128) for m in ("posted", "done")}
    assert values["zerohop", "put_notify", "one_way", 8] == pytest.approx(2e-3 / 4000)
    assert values["zerohop", "put_wide", "bandwidth", 64 * MIB] == pytest.approx(64 * MIB / 1e-3)
    assert values["bare", "put_wide", "bandwidth", 64 * MIB] == pytest.approx(64 * MIB / 1e-3)
    assert values["zerohop", "puts_1x512", "rate", 8] == pytest.approx(512 * 2000 / 1e-3)
    assert values["zerohop", "entries_direct_32", "done", 8] == pytest.approx(3e-3 / 256)
    assert values["nvshmem", "put_notify", "one_way", 8] == pytest.approx(1e-6 + 8e-9)
    assert values["nvshmem", "put_notify", "one_way", 64 * KIB] == pytest.approx(1.089536e-3)
    assert values["nvshmem", "put_wide", "bandwidth", 64 * MIB] == pytest.approx(1e9)
    assert values["nvshmem", "values_132x512", "rate", 8] == pytest.approx(1e6)
    routes = {(r["test"], r["route"]) for r in rows if r["impl"] == "zerohop"}
    assert routes >= {("put_notify", "mapped"), ("entries_direct_1", "direct")}
    assert ("host_puts_cpp", "p2p") in routes
    absent = {(a["impl"], a["test"]): a["reason"] for a in head["not_available"]}
    for threads in (1, 32, 128):
        said = absent["zerohop", f"entries_proxy_{threads}"]
        assert said == "not available: no proxies on this host"
    assert absent["nvshmem", "puts_132x512"].endswith("NVSHMEM: peer_put_many: error 700")
    assert (head["nvshmem"], head["nvshmem_memory"]) == ("3.4.5", "mapped")
    assert "one way of 8 B by soft0" in head["rings"]["HOST / HOST"]
    assert head["rings"].keys() == {"HOST / HOST", "HOST / GPU", "GPU / HOST", "GPU / GPU"}
    assert "until an entry is done" in text
    assert re.search("entries_proxy_1 to post <= 1 us not measured", text)
    assert "GPU / HOST: no figure: such a queue could not be opened" in text
    assert "not available: no dma-bufs on this host" in text


def test_without_nvshmem_or_a_compiler_that_works_ours_is_measured(
    stand_ins, monkeypatch, tmp_path
):
    options = Options("soft0", ("nvshmem",), quick=True)
    broken = stand_in_nvcc(tmp_path / "broken", stand_ins, works=False)
    monkeypatch.setenv("CUDA_HOME", str(broken))
    good, text = reported(suite.make, options)
    assert good
    assert re.search("nvshmem everything rank 0: PeerFailed: .*no such architecture", text)
    monkeypatch.setenv("NVSHMEM_HOME", "/nowhere")
    good, text = reported(suite.make, options)
    assert good
    reason = "NVSHMEM is not found in $NVSHMEM_HOME (/nowhere): pip install nvidia-nvshmem-cu13"
    assert f"nvshmem everything {reason}" in text


@pytest.mark.usefixtures("stand_ins")
def test_with_one_gpu_both_use_it_and_a_line_says_so(monkeypatch):
    monkeypatch.setattr(p2p._core, "gpu_count", lambda: 1)
    good, text = reported(suite.make, Options("soft0", ("nvshmem",), quick=True))
    assert good
    assert "There is one GPU: both processes use it" in text
    assert re.search("one way of 8 B <= 1.6 us [0-9.]+ .?s at 8 B not judged: one GPU", text)
    assert not re.search(r"\b(met|missed)\b", text)
    assert "NVSHMEM needs one GPU per process" in text


def test_the_peer_makes_no_multicast_call():
    source = nvshmem.SOURCE.read_text()
    assert not re.search("multicast|_mc_|nvls", source, re.IGNORECASE)


def test_cupy_that_is_missing_is_reported_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(
        PeerFailed, match=r"CuPy, .* not installed \(.*\): pip install 'zerohop\[cupy\]'"
    ):
        Kernels(0)


def test_nvcc_is_looked_for_in_every_usual_place_and_rather_with_cccl(monkeypatch, tmp_path):
    home = stand_in_home(tmp_path)
    first, second, bare = (
        stand_in_nvcc(tmp_path / name, home, cccl=name != "bare")
        for name in ("first", "second", "bare")
    )
    pips: dict[str, list[Path]] = {"nvidia.cu13": [], "nvidia.nvshmem": []}
    monkeypatch.setattr(nvshmem, "_pip_folders", pips.__getitem__)
    monkeypatch.setattr(nvshmem, "TOOLKIT", "/nowhere")

    def found(cuda_home: Path | str, path: str, *pip: Path) -> Path:
        monkeypatch.setenv("CUDA_HOME", str(cuda_home))
        monkeypatch.setenv("PATH", path)
        pips["nvidia.cu13"] = list(pip)
        return Path(nvshmem.find_nvcc()).parents[1]

    assert found(first, f"/nowhere:{second}/bin") == first
    assert found(bare, f"/nowhere:{second}/bin") == second
    assert found(bare, "/nowhere") == bare
    assert found(bare, "/nowhere", second) == second
    with pytest.raises(PeerFailed, match=r"nvcc, .* is not found: pip install nvidia-cuda-nvcc"):
        found("/nowhere", "/nowhere")
    monkeypatch.setenv("NVSHMEM_HOME", str(home))
    assert nvshmem.find_home() == home
    monkeypatch.delenv("NVSHMEM_HOME")
    with pytest.raises(PeerFailed, match="NVSHMEM is not found: pip install nvidia-nvshmem-cu13"):
        nvshmem.find_home()
    pips["nvidia.nvshmem"] = [home]
    assert nvshmem.find_home() == home
