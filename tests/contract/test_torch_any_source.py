"""recv of torch.distributed from any rank: which message it gets, and what becomes of the others."""

from datetime import timedelta
from typing import Any

import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN, within


def one_of_each(group: Any, count: int) -> None:
    """Rank 0 receives what every other rank sends, small or large: asked for before it is sent, and after."""
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(group), dist.get_world_size(group)
    for is_asked_before in (True, False):
        outs = [torch.zeros(count) for _ in range(1, size)]
        works = []
        if rank == 0 and is_asked_before:
            works = [dist.irecv(out, group=group, tag=count) for out in outs]
        if rank != 0 and not is_asked_before:
            works = [dist.isend(torch.full((count,), float(rank)), 0, group=group, tag=count)]
        dist.barrier(group=group)
        if rank != 0 and is_asked_before:
            dist.send(torch.full((count,), float(rank)), 0, group=group, tag=count)
        if rank == 0 and not is_asked_before:
            seen = [dist.recv(out, group=group, tag=count) for out in outs]
        for work in works:
            work.wait()
        if rank == 0 and is_asked_before:
            seen = [work.source_rank() for work in works]
        if rank == 0:
            assert sorted(seen) == list(range(1, size))
            assert [set(out.tolist()) for out in outs] == [{float(source)} for source in seen]
        dist.barrier(group=group)


def asynchronous() -> None:
    """Works get the messages in the order of their calls, in whatever order they are waited for."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    if rank != 0:
        dist.barrier()
        if rank == 1:
            for value in (1.0, 2.0, 3.0):
                dist.send(torch.full((3,), value), 0, tag=5)
        dist.barrier()
        return
    outs = [torch.zeros(3) for _ in range(3)]
    works = [dist.irecv(out, tag=5) for out in outs]
    assert not any(work.is_completed() for work in works)
    assert works[0].source_rank() == -1
    dist.barrier()
    for work in reversed(works):
        work.wait()
        assert work.is_completed()
        assert work.source_rank() == 1
    assert [out.tolist() for out in outs] == [[1.0] * 3, [2.0] * 3, [3.0] * 3]
    dist.barrier()


def beside_named_ones() -> None:
    """A recv from any leaves nothing that takes a message from a recv of a named rank, not even an empty one."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    empty = torch.empty(0)
    if rank == 1:
        dist.send(torch.full((2,), 1.0), 0)  # for `any`; rank 0 then looks for one of rank 2
    dist.barrier()
    if rank == 0:
        out = torch.zeros(2)
        assert dist.recv(out) == 1
    dist.barrier()
    if rank == 2:
        dist.send(empty, 0)
        dist.send(torch.full((2,), 2.0), 0)
        dist.send(empty, 0)
        dist.send(torch.full((2,), 3.0), 0)
        dist.send(empty, 0)
    if rank == 0:
        assert dist.recv(empty, 2) == 2
        dist.recv(out, 2)
        assert out.tolist() == [2.0] * 2
        assert dist.recv(empty) == 2
        assert dist.recv(out) == 2
        assert out.tolist() == [3.0] * 2
        dist.recv(empty, 2)
    dist.barrier()
    if rank == 0:  # posted first, and in the order of what comes
        works = [dist.irecv(torch.zeros(2), tag=1), dist.irecv(out, 2, tag=1)]
        works.append(dist.irecv(empty, 2, tag=1))
        dist.barrier()
        for work in works[1:]:
            work.wait()
        assert out.tolist() == [4.0] * 2
        dist.barrier()
        works[0].wait()
        assert works[0].source_rank() == 1
    else:
        dist.barrier()
        if rank == 2:
            dist.send(torch.full((2,), 4.0), 0, tag=1)
            dist.send(empty, 0, tag=1)
        dist.barrier()
        if rank == 1:
            dist.send(torch.full((2,), 5.0), 0, tag=1)
    dist.barrier()


def mistakes() -> None:
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    group = dist.new_group(timeout=timedelta(seconds=1))
    if rank == 0:
        with pytest.raises(ValueError, match=r"any rank.*tags go from 0"):
            dist.recv(torch.ones(3), tag=-1)
        with pytest.raises(ValueError, match="not contiguous"):
            dist.recv(torch.ones(4, 4).t()[:2])
        message = r"recv from any rank of 'group .*', tag 0: no rank has sent"
        with pytest.raises(zh.TransferTimeout, match=message), within(5, at_least=0.9):
            dist.recv(torch.empty(3), group=group)
    dist.barrier()
    if rank == 1:
        dist.send(torch.ones(10), 0)
    if rank == 0:
        with pytest.raises(ValueError, match=r"tag 0: a message of 40 bytes does not fit"):
            dist.recv(torch.empty(5))
        out = torch.zeros(20)
        with pytest.raises(ValueError, match=r"rank 1 has sent 40 bytes, .* tensor of 80"):
            dist.recv(out)  # it is still there
        assert out.sum() == 10
    dist.barrier()
    alone = dist.new_group([0])
    if rank == 0:
        with pytest.raises(ValueError, match="no other rank"):
            dist.recv(torch.ones(3), group=alone)


def all_of_them() -> None:
    import torch.distributed as dist

    for count in (10, 40_000):
        one_of_each(dist.group.WORLD, count)
    asynchronous()
    beside_named_ones()
    some = dist.new_group([2, 0, 1])
    one_of_each(some, 7)
    mistakes()


@pytest.mark.timeout(120)
def test_a_recv_from_any_rank(torch_job):
    torch_job(all_of_them, 3)


def until_they_leave() -> None:
    """What ranks sent before they left the group is received. Then there is nobody to receive from."""
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.new_group()
    for leaver in range(1, size):
        if rank == leaver:
            dist.send(torch.full((3,), float(rank)), 0, group=group)
            dist.destroy_process_group(group)
        dist.barrier()
        if rank == 0:
            out = torch.empty(3)
            assert dist.recv(out, group=group) == leaver
            assert out.tolist() == [float(leaver)] * 3
    if rank == 0:
        with pytest.raises(zh.PeerLost, match="all other ranks have left"), within(LOST_WITHIN):
            dist.recv(torch.empty(3), group=group)
        dist.destroy_process_group(group)


def test_ranks_that_leave_after_their_messages(torch_job):
    torch_job(until_they_leave, 3)
