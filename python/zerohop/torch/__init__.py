"""A backend of torch.distributed: ``import zerohop.torch``, then ``init_process_group("zerohop")``.

It serves tensors of hosts and GPUs: send, recv (also from any rank) and their asynchronous forms, batch_isend_irecv,
broadcast, scatter, gather, all_gather, all_to_all, all_reduce, reduce, reduce_scatter and barrier, and what is built on
them: DistributedDataParallel, fully_shard (FSDP2), the object collectives. Another backend may serve the other type of device (``"cpu:gloo,cuda:zerohop"``, ``"cpu:zerohop,cuda:nccl"``).

Each group is a World, with the same rules: a lost rank, or a timeout, ends the collectives of its groups on all
ranks, with PeerLost, TransferTimeout, ... from the call or ``work.wait()``. A recv that timed out stays posted.

Output tensors are contiguous, except those of all_reduce and reduce in host memory. On a GPU a call starts after earlier
work in the current stream. Where kernels carry it out (``help(zerohop.World)``: gpu_collectives), ``work.wait()`` orders the
current stream behind it; elsewhere its tensors are complete, for all streams, when ``work.wait()`` returns, which
blocks the host.
"""

from zerohop.torch.foreign import dist
from zerohop.torch.group import ProcessGroup, creators

__all__ = ["ProcessGroup"]

for _string, _backends, _create in creators():
    if _string not in dist.Backend.backend_list:
        dist.Backend.register_backend(_string, _create, extended_api=True, devices=list(_backends))
