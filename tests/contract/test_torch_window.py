"""Windows of torch.distributed (_new_window): put, signal and wait_signal between the ranks of a group."""

import re
import threading
from datetime import timedelta
from typing import Any

import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN, within
from support.torch_ranks import TIMEOUT


def made(tensor: Any, group: Any) -> Any:
    """By PyTorch's own call, where it has that."""
    import torch.distributed as dist

    call = getattr(dist, "_new_window", None)
    return group.new_window(tensor) if call is None else call(tensor, group=group)


def ring(group: Any, dtype: Any, count: int, async_op: bool) -> None:
    """Each rank writes to the next one, into its place there; what a signal announces is there."""
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(group), dist.get_world_size(group)
    tensor = torch.zeros(size, count, dtype=dtype)
    window = made(tensor, group)
    after, before = (rank + 1) % size, (rank - 1) % size
    for step in range(1, 20):
        value = torch.full((count,), 6 * step + rank, dtype=dtype)
        put = window.put(value, after, rank * count, async_op)
        signal = window.signal(after, async_op)
        came = window.wait_signal(before, async_op)
        for work in (put, signal, came):
            assert work.wait() is True
            assert work.is_success()
        assert tensor[before].tolist() == [6 * step + before] * count
        window.signal(before, False)  # it may be written again
        window.wait_signal(after, False)
    window.tensor_deregister()


def rings() -> None:
    import torch
    import torch.distributed as dist

    rank, whole = dist.get_rank(), dist.group.WORLD
    assert whole.supports_window  # type: ignore[union-attr]
    some = dist.new_group([2, 0])
    for dtype, count in ((torch.float32, 3), (torch.bfloat16, 40_000), (torch.int8, 1)):
        for async_op in (False, True):
            ring(whole, dtype, count, async_op)
            if rank in (0, 2):
                ring(some, dtype, count, async_op)


def test_what_a_signal_announces_is_there(torch_job):
    torch_job(rings, 3)


def signals() -> None:
    """They are counted, whoever waits, and a rank may name itself."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    group: Any = dist.group.WORLD
    tensor = torch.arange(4.0 + rank)  # of different sizes
    window = made(None, group)
    with pytest.raises(zh.Error, match=r"no tensor: call tensor_register"):
        window.signal(0, False)
    assert repr(window) == "<zerohop.torch Window window 0 of 'group 0': no tensor>"
    window.tensor_register(tensor)
    assert repr(window).endswith(f": ({4 + rank},) of torch.float32>")
    with pytest.raises(zh.Error, match="has a tensor already"):
        window.tensor_register(tensor)
    other = 1 - rank
    for _ in range(5):
        window.signal(other, False)
    works = [window.wait_signal(other, True) for _ in range(5)]
    threads = [threading.Thread(target=work.wait) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert all(work.is_completed() for work in works)
    dist.barrier()
    late = timedelta(seconds=0.3)
    pending = window.wait_signal(other, True)
    assert repr(pending).endswith(", under way>")
    with pytest.raises(
        zh.TransferTimeout, match=rf"wait_signal of rank {other} of 'window 0|no signal"
    ):
        pending.wait(late)
    dist.barrier()
    window.signal(other, False)
    pending.wait()
    assert re.fullmatch(
        rf"<zerohop.torch SignalWork: wait_signal of rank {other} of .*, done>", repr(pending)
    )
    window.put(torch.full((2,), 9.0), rank, 1, False)
    window.signal(rank, False)
    window.wait_signal(rank, False)
    assert tensor.tolist()[:4] == [0.0, 9.0, 9.0, 3.0]
    assert window.map_remote_tensor(rank) is tensor
    dist.barrier()
    window.put(torch.full((4, 2), 5.0).t()[:1], other, 0, False)  # with gaps it is sent as a copy
    window.tensor_deregister()
    assert tensor.tolist()[:4] == [5.0] * 4
    window.tensor_register(tensor)  # once more; signals start from nothing
    with pytest.raises(zh.TransferTimeout), within(5, at_least=0.2):
        window.wait_signal(other, True).wait(late)
    window.tensor_deregister()


def mistakes() -> None:
    import torch
    import torch.distributed as dist

    other = 1 - dist.get_rank()
    group: Any = dist.group.WORLD
    window = made(torch.zeros(4), group)
    with pytest.raises(IndexError, match=r"12 bytes from offset 8 are not within the 16 of rank"):
        window.put(torch.ones(3), other, 2, False)
    with pytest.raises(IndexError, match=r"from offset -4|negative|not within"):
        window.put(torch.ones(3), other, -1, False)
    with pytest.raises(ValueError, match=r"is of torch.float32, and this one of torch.int32"):
        window.put(torch.ones(3, dtype=torch.int32), other, 0, False)
    with pytest.raises(IndexError, match="ranks go from 0 to 1"):
        window.signal(2, False)
    with pytest.raises(ValueError, match=r"cannot be mapped here: put\(\) writes to it"):
        window.map_remote_tensor(other)
    if hasattr(dist, "_new_window"):
        assert window.get_attr(other).access_type.name == "SEPARATE"
    else:
        with pytest.raises(NotImplementedError, match=r"need PyTorch 2\.14"):
            window.get_attr(other)
    with pytest.raises(ValueError, match="not contiguous"):
        group.new_window(torch.ones(4, 4).t()[:2])
    window.tensor_deregister()
    with pytest.raises(zh.Error, match="no tensor"):
        window.tensor_deregister()


def in_turn() -> None:
    signals()
    mistakes()


def test_signals_are_counted_and_mistakes_refused(torch_job):
    torch_job(in_turn, 2)


def left_alone() -> None:
    """The wait of a rank ends when the other one leaves the group; the memory of that one is closed."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    pair: Any = dist.new_group([0, 1])
    window = made(torch.zeros(4), pair)
    window.signal(1 - rank, False)
    window.wait_signal(1 - rank, False)
    dist.barrier()
    if rank == 1:
        pair.abort()
        with pytest.raises(zh.Error, match="no tensor"):
            window.put(torch.ones(4), 0, 0, False)
    else:
        with pytest.raises(zh.PeerLost, match="rank 1"), within(LOST_WITHIN + 1):
            window.wait_signal(1, False)
    dist.barrier()


def test_a_wait_for_a_rank_that_leaves_ends(torch_job):
    torch_job(left_alone, 2)
