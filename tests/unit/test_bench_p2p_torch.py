"""The peers "torch" and "nccl" of `zerohop bench p2p`: their loops, with the CPU's memory for a GPU's."""

from types import SimpleNamespace
from typing import Any

import pytest
from zerohop.bench.p2p import peers
from zerohop.bench.p2p.peers import Nccl, Torch
from zerohop.bench.p2p.plan import HALO_NBYTES, HALO_PITCH
from zerohop.bench.plan import PeerFailed

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
NBYTES = 1 << 20


class Event:
    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        LOG.append("event")

    def elapsed_time(self, end: "Event") -> float:
        return 1.28  # milliseconds


LOG: list[Any] = []
CUDA = SimpleNamespace(
    set_device=lambda device: None,
    synchronize=lambda: LOG.append("synchronize"),
    current_stream=lambda: SimpleNamespace(synchronize=lambda: LOG.append("synchronize")),
    nccl=SimpleNamespace(version=lambda: (2, 28, 9)),
    Event=Event,
    _sleep=lambda cycles: LOG.append("gate"),
)


class CpuTorch:
    """torch whose "cuda" devices are the CPU."""

    cuda = CUDA

    def device(self, kind: str, ordinal: int) -> Any:
        assert kind == "cuda"
        return torch.device("cpu")

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


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


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    LOG.clear()
    reductions = SimpleNamespace(reduce_tensor=lambda tensor: (rebuild, (tensor,)))
    modules = {"torch.multiprocessing.reductions": reductions, "torch.distributed": Dist()}
    monkeypatch.setattr(peers, "torch_with_gpus", CpuTorch)
    monkeypatch.setattr(peers, "require_module", lambda name, remedy: modules[name])
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "ERROR")
    monkeypatch.setattr(peers, "ROUNDS", 2)
    monkeypatch.setattr(peers, "BATCHES", 2)


def test_copies_land_in_the_half_that_is_written() -> None:
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
    assert player.both(8, 1) > 0


def test_halo_columns_go_to_the_end_of_their_rows() -> None:
    player = Torch(Link(0), (0, 0), NBYTES)
    player._near[: NBYTES // 2] = 3
    player.halo(20 * HALO_NBYTES, 1)
    rows = player._far[NBYTES // 2 :].view(-1, HALO_PITCH)
    assert bool((rows[:20, -HALO_NBYTES:] == 3).all())
    assert not rows[:, :-HALO_NBYTES].any()
    assert not rows[20:].any()


@pytest.mark.parametrize("rank", [0, 1])
def test_halo_columns_between_two_gpus_are_left_out_as_they_would_end_the_process(
    rank: int,
) -> None:
    player = Torch(Link(rank), (0, 1), NBYTES)
    with pytest.raises(PeerFailed, match="a kernel of another GPU"):
        player.halo(20 * HALO_NBYTES, 1)


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_copies_once_in_both_directions_before_anything_is_measured(
    rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Any] = []
    monkeypatch.setattr(Torch, "timed", lambda self, copy, times: copies.append(copy))
    player = Torch(Link(rank), (0, 1), NBYTES)
    player._near[:8], player._far[:8] = 1, 2
    for copy in copies:
        copy()
    inbox = slice(NBYTES // 2, NBYTES // 2 + 8)
    assert bool((player._far[inbox] == 1).all())
    assert bool((player._near[inbox] == 2).all())


def test_the_passive_rank_copies_nothing_but_in_both_directions_at_once() -> None:
    player = Torch(Link(1), (0, 1), NBYTES)
    player._near[:8] = 1
    assert (player.write(8, 1), player.read(8, 1)) == (0.0, 0.0)
    assert Torch(Link(1), (0, 0), NBYTES).halo(64, 1) == 0.0
    assert (list(player.write_latency(8, 1)), player.post_write(8, 1)) == ([], {})
    assert not player._far[NBYTES // 2 :].any()
    player.both(8, 1)
    assert bool((player._far[NBYTES // 2 :][:8] == 1).all())
    player.close()


@pytest.mark.parametrize("rank", [0, 1])
def test_nccl_sends_from_rank_0_and_both_ways_where_asked(rank: int) -> None:
    player = Nccl(Link(rank), (0, 1), NBYTES)
    act = "send" if rank == 0 else "recv"
    for measure in (player.write, player.write_latency):
        LOG.clear()
        measure(4096, 2)
        assert [entry for entry in LOG if entry != "synchronize"] == [(act, 4096, 1 - rank)] * 2
    LOG.clear()
    player.both(64, 1)
    assert [
        *(("isend", 64, 1 - rank), ("irecv", 64, 1 - rank)),
        *("wait", "wait", "synchronize"),
    ] == LOG
    assert bool(player.post_write(8, 1)) is (rank == 0)
    assert player.facts() == {"nccl": "2.28.9"}
    player.close()
    assert LOG[-1] == "destroy"


@pytest.mark.parametrize("rank", [0, 1])
def test_nccl_ping_pong_is_enqueued_behind_the_gate(rank: int) -> None:
    player = Nccl(Link(rank), (0, 1), NBYTES)
    LOG.clear()
    assert player.stream_notify(8, 1) == {"one_way": pytest.approx(0.32e-3)}
    out, back = ("send", 8, 1 - rank), ("recv", 8, 1 - rank)
    rounds = [out, back] * 2 if rank == 0 else [back, out] * 2
    gate = ["gate"] if rank == 0 else []
    assert [*rounds, "synchronize", *gate, "event", *rounds, "event", "synchronize"] == LOG
