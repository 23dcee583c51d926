"""A backend of torch.distributed: ``import zerohop.torch``, then ``init_process_group("zerohop")``.

It moves tensors of hosts and GPUs and has no reductions: send, recv and their asynchronous ones, batch_isend_irecv, broadcast,
scatter, gather, all_gather, all_to_all and barrier, with the calls made of them, such as those of objects. Reductions are for
another backend, of the same group for another type of device (``"cpu:gloo,cuda:zerohop"``, ``"cpu:zerohop,cuda:nccl"``)
or of a second group.

Each group is a World, with what holds there: a rank that is lost, or a timeout, ends the collectives of its groups on all
ranks, with PeerLost, TransferTimeout, ... from the call or ``work.wait()``. A recv that ended by its timeout stays posted.

Tensors are contiguous where they are written. On a GPU a call begins behind what the current stream was given before, and
its tensors are complete, for all streams, when ``work.wait()`` returns, which blocks the host.
"""

from zerohop.torch.foreign import dist
from zerohop.torch.group import ProcessGroup, creators

__all__ = ["ProcessGroup"]

for _string, _backends, _create in creators():
    if _string not in dist.Backend.backend_list:
        dist.Backend.register_backend(_string, _create, extended_api=True, devices=list(_backends))
