"""The peers of `zerohop bench p2p`, on stand-ins: libcuda in host memory, PyTorch whose GPUs are the CPU, NCCL's log."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.bench_players import HostCuda
from zerohop.bench.p2p import peers, plan
from zerohop.bench.p2p.driver import Driver
from zerohop.bench.p2p.peers import Nccl, Raw, Torch
from zerohop.bench.p2p.plan import HALO_NBYTES, HALO_PITCH
from zerohop.bench.plan import MIB, Order, PeerFailed

NBYTES = 1 << 20
INBOX = slice(NBYTES // 2, NBYTES // 2 + 8)
LOG: list[Any] = []


def test_errors_of_the_driver_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_stream_that_does_not_end_is_not_waited_for_longer_than_said() -> None:
    with pytest.raises(PeerFailed, match=r"not done after 0\.05 s"):
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


def test_raw_copies_what_the_test_says_as_often_as_it_says(raw) -> None:
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


def test_raw_scatters_each_block_to_its_place(raw) -> None:
    player, _, (source, _), (_, target) = raw
    player.perform(Order("write_many_64k", "python", MIB, 1))
    assert (target.reshape(16, -1)[plan.places(16)] == source.reshape(16, -1)).all()
    assert sorted(plan.places(16)) == list(range(16)) != list(plan.places(16))


def test_raw_moves_the_first_columns_into_the_last(raw) -> None:
    player, _, (source, _), (_, target) = raw
    player.halo(100 * HALO_NBYTES, 1)
    rows, columns = target.reshape(-1, HALO_PITCH), source.reshape(-1, HALO_PITCH)[:100]
    assert (rows[:100, -HALO_NBYTES:] == columns[:, :HALO_NBYTES]).all()
    assert not rows[1:, :-HALO_NBYTES].any()
    assert not rows[100:].any()


class Event:
    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        LOG.append("event")

    def elapsed_time(self, end: "Event") -> float:
        return 1.28  # milliseconds


class CpuTorch:
    """torch whose "cuda" devices are the CPU."""

    cuda = SimpleNamespace(
        set_device=lambda device: None,
        synchronize=lambda: LOG.append("synchronize"),
        current_stream=lambda: SimpleNamespace(synchronize=lambda: LOG.append("synchronize")),
        nccl=SimpleNamespace(version=lambda: (2, 28, 9)),
        Event=Event,
        _sleep=lambda cycles: LOG.append("gate"),
    )

    def device(self, kind: str, ordinal: int) -> str:
        assert kind == "cuda"
        return "cpu"

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["torch"], name)


class Link:
    """Of two ranks of which the other one says the same."""

    size = 2

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def exchange(self, value: Any) -> list[Any]:
        return [value, value]


class Dist:
    """torch.distributed that only keeps a log."""

    P2POp = staticmethod(lambda act, tensor, other: (act, tensor.numel(), other))
    TCPStore = staticmethod(lambda *arguments, **options: SimpleNamespace(port=9))
    isend, irecv = "isend", "irecv"

    def init_process_group(self, backend: str, **options: Any) -> None:
        assert backend == "nccl"

    def destroy_process_group(self) -> None:
        LOG.append("destroy")

    def send(self, tensor: Any, other: int) -> None:
        LOG.append(("send", tensor.numel(), other))

    def recv(self, tensor: Any, other: int) -> None:
        LOG.append(("recv", tensor.numel(), other))

    def batch_isend_irecv(self, operations: Any) -> Any:
        LOG.extend(operations)
        return [SimpleNamespace(wait=lambda: LOG.append("wait"))] * 2


def rebuild(tensor: Any) -> Any:
    return tensor  # a copy: it came out of a pickle


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    LOG.clear()
    reductions = SimpleNamespace(reduce_tensor=lambda tensor: (rebuild, (tensor,)))
    modules = {"torch.multiprocessing.reductions": reductions, "torch.distributed": Dist()}
    monkeypatch.setattr(peers, "torch_with_gpus", CpuTorch)
    monkeypatch.setattr(peers, "require_module", lambda name, remedy: modules[name])
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "ERROR")
    monkeypatch.setattr(peers, "ROUNDS", 2)
    monkeypatch.setattr(peers, "BATCHES", 2)


@pytest.mark.usefixtures("on_the_cpu")
def test_torch_copies_into_the_half_that_is_written() -> None:
    player = Torch(Link(0), (0, 1), NBYTES)
    near, far, half = player._near, player._far, NBYTES // 2
    near[:half] = 3
    assert player.write(4096, 2) > 0
    assert LOG[-1] == "synchronize"
    assert bool((far[half : half + 4096] == 3).all())
    assert not far[:half].any()
    assert not far[half + 4096 :].any()
    far[:64] = 5
    player.read(64, 1)
    assert bool((near[half : half + 64] == 5).all())
    assert len(player.write_latency(8, 3)) == 3
    assert player.post_write(8, 1)["per_call"] > 0


@pytest.mark.usefixtures("on_the_cpu")
def test_torch_moves_halo_columns_on_one_gpu_alone() -> None:
    """Between two it would end the process."""
    player = Torch(Link(0), (0, 0), NBYTES)
    player._near[: NBYTES // 2] = 3
    player.halo(20 * HALO_NBYTES, 1)
    rows = player._far[NBYTES // 2 :].view(-1, HALO_PITCH)
    assert bool((rows[:20, -HALO_NBYTES:] == 3).all())
    assert not rows[:, :-HALO_NBYTES].any()
    assert not rows[20:].any()
    for rank in (0, 1):
        with pytest.raises(PeerFailed, match="a kernel of another GPU"):
            Torch(Link(rank), (0, 1), NBYTES).halo(20 * HALO_NBYTES, 1)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.usefixtures("on_the_cpu")
def test_torch_copies_once_in_both_directions_before_anything_is_measured(
    rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Any] = []
    monkeypatch.setattr(Torch, "timed", lambda self, copy, times: copies.append(copy))
    player = Torch(Link(rank), (0, 1), NBYTES)
    player._near[:8], player._far[:8] = 1, 2
    for copy in copies:
        copy()
    assert bool((player._far[INBOX] == 1).all())
    assert bool((player._near[INBOX] == 2).all())


@pytest.mark.usefixtures("on_the_cpu")
def test_torch_copies_nothing_in_rank_1_but_in_both_directions_at_once() -> None:
    player = Torch(Link(1), (0, 1), NBYTES)
    player._near[:8] = 1
    assert (player.write(8, 1), player.read(8, 1)) == (0.0, 0.0)
    assert Torch(Link(1), (0, 0), NBYTES).halo(64, 1) == 0.0
    assert (list(player.write_latency(8, 1)), player.post_write(8, 1)) == ([], {})
    assert not player._far[INBOX].any()
    player.both(8, 1)
    assert bool((player._far[INBOX] == 1).all())
    player.close()


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.usefixtures("on_the_cpu")
def test_nccl_sends_from_rank_0_and_both_ways_where_asked(rank: int) -> None:
    player = Nccl(Link(rank), (0, 1), NBYTES)
    act = "send" if rank == 0 else "recv"
    for measure in (player.write, player.write_latency):
        LOG.clear()
        measure(4096, 2)
        assert [entry for entry in LOG if entry != "synchronize"] == [(act, 4096, 1 - rank)] * 2
    LOG.clear()
    player.both(64, 1)
    both = ("isend", 64, 1 - rank), ("irecv", 64, 1 - rank)
    assert [*both, "wait", "wait", "synchronize"] == LOG
    assert bool(player.post_write(8, 1)) is (rank == 0)
    assert player.facts() == {"nccl": "2.28.9"}
    player.close()
    assert LOG[-1] == "destroy"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.usefixtures("on_the_cpu")
def test_nccl_ping_pong_is_enqueued_behind_the_gate(rank: int) -> None:
    player = Nccl(Link(rank), (0, 1), NBYTES)
    LOG.clear()
    assert player.stream_notify(8, 1) == {"one_way": pytest.approx(0.32e-3)}
    out, back = ("send", 8, 1 - rank), ("recv", 8, 1 - rank)
    rounds = [out, back] * 2 if rank == 0 else [back, out] * 2
    gate = ["gate"] if rank == 0 else []
    assert [*rounds, "synchronize", *gate, "event", *rounds, "event", "synchronize"] == LOG


def test_torch_that_is_missing_or_sees_no_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
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
