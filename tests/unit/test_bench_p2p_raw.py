"""Bare copies of the driver, the peer "raw" of `zerohop bench p2p`: on a stand-in of libcuda in host memory."""

import numpy as np
import pytest
from support.bench_players import HostCuda
from zerohop.bench.p2p import plan
from zerohop.bench.p2p.driver import Driver
from zerohop.bench.p2p.peers import Raw
from zerohop.bench.plan import MIB, Order, PeerFailed


def test_a_cuda_error_is_quoted_with_its_code_and_text() -> None:
    with pytest.raises(PeerFailed, match=r"cuInit: CUDA error 100 \(made up\)"):
        Driver(HostCuda(cuInit=100))


def test_a_machine_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerohop.bench.p2p.driver.LIBRARY", "libcuda-of-nobody.so.1")
    with pytest.raises(PeerFailed, match="no NVIDIA driver: "):
        Driver()


def test_a_stream_that_does_not_end_is_not_waited_for_longer_than_said() -> None:
    stream = Driver(HostCuda(busy=True)).gpu(0).stream()
    with pytest.raises(PeerFailed, match=r"not done after 0\.05 s"):
        stream.wait(0.05)
    Driver(HostCuda()).gpu(0).stream().wait(0.0)


def test_gpus_that_cannot_reach_each_other_are_refused_and_access_may_be_enabled_already() -> None:
    with pytest.raises(PeerFailed, match="GPU 0 cannot reach the memory of GPU 1"):
        Raw(None, (0, 1), 64, HostCuda(reachable=False))
    Raw(None, (0, 1), 64, HostCuda(cuCtxEnablePeerAccess=704))
    with pytest.raises(PeerFailed, match="cuCtxEnablePeerAccess: CUDA error 217"):
        Raw(None, (0, 1), 64, HostCuda(cuCtxEnablePeerAccess=217))


@pytest.fixture
def raw() -> tuple[Raw, HostCuda]:
    cuda = HostCuda()
    player = Raw(None, (0, 1), 2 * MIB, cuda)
    near = np.frombuffer(cuda.kept[0], np.uint8)
    near[:] = np.random.default_rng(1).integers(1, 256, near.size, np.uint8)
    cuda.calls.clear()
    return player, cuda


def halves(cuda: HostCuda) -> tuple[np.ndarray, np.ndarray]:
    """(what is copied from here, what arrived there)."""
    near, far = (np.frombuffer(kept, np.uint8) for kept in cuda.kept)
    return near[: near.size // 2], far[far.size // 2 :]


def test_raw_copies_what_the_test_says_as_often_as_it_says(raw) -> None:
    player, cuda = raw
    source, target = halves(cuda)
    assert player.write(4096, 3) > 0
    assert cuda.calls.count("cuMemcpyPeerAsync") == 3
    assert (target[:4096] == source[:4096]).all()
    assert not target[4096:].any()
    assert len(player.write_latency(8, 5)) == 5
    assert player.post_write(8, 1)["per_call"] > 0


def test_raw_reads_and_copies_both_ways(raw) -> None:
    player, cuda = raw
    near, far = (np.frombuffer(kept, np.uint8) for kept in cuda.kept)
    half = near.size // 2
    far[:64] = 9
    player.read(64, 1)
    assert (near[half : half + 64] == 9).all()
    far[:64] = 7
    player.both(64, 1)
    assert (near[half : half + 64] == 7).all()
    assert (far[half : half + 64] == near[:64]).all()


def test_raw_scatters_each_block_to_its_place(raw) -> None:
    player, cuda = raw
    source, target = halves(cuda)
    player.perform(Order("write_many_64k", "python", MIB, 1))
    assert (target.reshape(16, -1)[plan.places(16)] == source.reshape(16, -1)).all()
    assert sorted(plan.places(16)) == list(range(16)) != list(plan.places(16))


def test_raw_moves_the_first_columns_into_the_last(raw) -> None:
    player, cuda = raw
    source, target = halves(cuda)
    player.halo(100 * plan.HALO_NBYTES, 1)
    rows = target.reshape(-1, plan.HALO_PITCH)
    columns = source.reshape(-1, plan.HALO_PITCH)[:100, : plan.HALO_NBYTES]
    assert (rows[:100, -plan.HALO_NBYTES :] == columns).all()
    assert not rows[:, : -plan.HALO_NBYTES].any()
    assert not rows[100:].any()
