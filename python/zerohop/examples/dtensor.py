"""Products of matrices that lie on several ranks (DTensor): ``torchrun --nproc-per-node 2 -m zerohop.examples.dtensor``."""

import argparse
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import zerohop.torch  # noqa: F401 adds the backend


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=6, help="of each rank")
    rows = parser.parse_args().rows
    dist.init_process_group("zerohop")
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    matrix = torch.arange(size * rows * 4.0).reshape(size * rows, 4) % 7  # the same on all ranks
    by_rows: Any = distribute_tensor(matrix, mesh, [Shard(0)])
    partial = by_rows.T @ by_rows  # each rank multiplies its rows
    product = partial.redistribute(mesh, [Replicate()])  # all_reduce adds that up
    by_columns = product.redistribute(mesh, [Shard(1)])
    again = by_columns.full_tensor()  # all_gather
    right = matrix.T @ matrix
    for name, found in {"the product": product.to_local(), "the gathered one": again}.items():
        if not torch.equal(found, right):
            sys.exit(f"WRONG: {name} is {found}, in one process {right}")
    if rank == 0:
        print(f"The product on {size} ranks equals that of one process.")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
