"""all_reduce of sparse tensors, and DistributedDataParallel with sparse gradients."""

from typing import Any

import pytest
from support.link import until


def sums() -> None:
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(), dist.get_world_size()

    def own(rank: int, dense: tuple[int, ...] = ()) -> Any:
        """With rank elements, so that rank 0 has none, and the first index twice."""
        rows = [0, *range(rank - 1)] if rank else []
        values = torch.full((rank, *dense), 1.0 + rank)
        return torch.sparse_coo_tensor(torch.tensor([rows, rows]).long(), values, (4, 4, *dense))

    for dense in ((), (3,), (2, 5)):
        expected = sum(own(each, dense).to_dense() for each in range(size))
        tensor = own(rank, dense)
        dist.all_reduce(tensor)
        assert torch.equal(tensor.to_dense(), expected)
        tensor = own(rank, dense)
        work: Any = dist.all_reduce(tensor, async_op=True)
        until(work.is_completed, "the all_reduce")
        assert torch.equal(tensor.to_dense(), expected)
        assert work.is_success()
        work.wait()
        assert torch.equal(work.get_future().wait()[0].to_dense(), expected)
    with pytest.raises(ValueError, match="only SUM, not"):
        dist.all_reduce(own(rank), dist.ReduceOp.MAX)
    with pytest.raises(ValueError, match=r"the ranks have different shapes: .*\[2, 4, 4\]"):
        dist.all_reduce(torch.eye(4 + rank).to_sparse())
    with pytest.raises(ValueError, match=r"layout torch.sparse_csr"):
        dist.all_reduce(torch.eye(4).to_sparse_csr())
    dist.barrier()


def gradients() -> None:
    """The same as those of one process that has the inputs of all."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank, size = dist.get_rank(), dist.get_world_size()
    inputs = torch.arange(3 * size).reshape(size, 3) * 5 % 8
    torch.manual_seed(1)
    alone = torch.nn.Embedding(8, 4, sparse=True)
    torch.manual_seed(1)
    shared = DistributedDataParallel(torch.nn.Embedding(8, 4, sparse=True))
    alone(inputs).square().mean().backward()
    shared(inputs[rank]).square().mean().backward()
    grad: Any = shared.module.weight.grad
    assert grad.is_sparse
    assert torch.allclose(grad.to_dense(), alone.weight.grad.to_dense())  # type: ignore[union-attr]


@pytest.mark.parametrize(("function", "size"), [(sums, 3), (gradients, 2)])
def test_sparse_tensors_are_summed(torch_job, function, size):
    torch_job(function, size)
