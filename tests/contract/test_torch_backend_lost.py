"""A rank of torch.distributed that dies ends what the others have under way, and they are told who it was."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN
from support.link import until
from support.patience import patient
from support.spawned import Told
from support.torch_ranks import torch_ranks

TOLD = 2.0  # seconds beside those in which a loss is seen: from rank to rank
SIZE = 3


@pytest.fixture
def dying(tmp_path: Path, device: str, monkeypatch) -> Iterator[Told]:
    """The last rank, on its way."""
    monkeypatch.setenv("ZEROHOP_DEVICE", device)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    last = Told("support.torch_ranks", tmp_path / "store", SIZE)
    last.tell("come")
    yield last
    last.discard()


def survive(stopped: str) -> None:
    """stopped: a file that comes to be when the last rank is no more. The others wait for it, one way and another."""
    import torch
    import torch.distributed as dist

    rank, last = dist.get_rank(), SIZE - 1
    group = dist.new_group([0, last])
    if rank == 0:
        dist.barrier(group=group)
    dist.barrier()
    pending: list[Any] = [
        dist.irecv(torch.empty(100), last),
        dist.isend(torch.empty(100_000), last, tag=1),
        dist.broadcast(torch.empty(100), last, async_op=True),
        dist.barrier(async_op=True),
    ]
    if rank == 0:
        pending.append(dist.broadcast(torch.empty(100), last, group=group, async_op=True))
    future = pending[0].get_future()
    assert not any(work.is_completed() for work in pending)
    Path(f"{stopped} waits for rank {rank}").touch()
    until(lambda: Path(stopped).exists(), "the last rank is no more", patient(60))
    begin = time.monotonic()
    for number, work in enumerate(pending):
        name = "rank 1" if number == 4 else f"rank {last}"  # in the group of two
        with pytest.raises(zh.PeerLost, match=name):
            work.wait()
        assert isinstance(work.exception(), zh.PeerLost)
    assert time.monotonic() - begin < LOST_WITHIN + TOLD
    with pytest.raises(zh.PeerLost, match=f"rank {last}"):
        future.wait()
    with pytest.raises(zh.PeerLost, match=f"rank {last}"):
        dist.isend(torch.ones(3), last).wait()
    with pytest.raises(zh.PeerLost, match=f"ended: .*rank {last}"):
        dist.broadcast(torch.ones(3), 0)
    other = 1 - rank  # those that are left reach each other
    work = dist.isend(torch.full((3,), float(rank)), other)
    out = torch.empty(3)
    dist.recv(out, other)
    work.wait()
    assert out.tolist() == [float(other)] * 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_dies_or_hangs_is_lost(tmp_path: Path, dying: Told, number: int) -> None:
    stopped = tmp_path / "stopped"
    with torch_ranks(tmp_path / "store", survive, SIZE - 1, str(stopped), of=SIZE) as ranks:
        assert dying.answer(patient(60)) is None
        waiting = [tmp_path / f"stopped waits for rank {rank}" for rank in range(SIZE - 1)]
        until(lambda: all(each.exists() for each in waiting), "all wait", patient(60))
        dying.signal(number)
        stopped.touch()
        ranks.results()
