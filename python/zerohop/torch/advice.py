"""What the messages of failures advise a program of torch.distributed."""

from __future__ import annotations

from zerohop._world.advice import Advice
from zerohop.errors import PeerLost, reworded

_GO_ON = (
    "call destroy_process_group() and init_process_group() with the ranks that are left, or let torchrun start all ranks again "
    "(--max-restarts)"
)
ADVICE = Advice(
    whose="group",
    lost=f"to go on, {_GO_ON}",
    late="give the group a longer timeout if it takes longer. The collectives of this group have ended: make another group (new_group)",
    after_loss=f"To go on, {_GO_ON}",
    after_end="Make another group (new_group)",
)


def advised(error: PeerLost) -> PeerLost:
    """The loss of a rank in a send or recv, with the remedy of a group instead of a Peer's."""
    return reworded(error, f"{str(error).removesuffix('; connect again')}; {ADVICE.lost}")
