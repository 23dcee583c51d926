"""What each block has to do with the other side, as matvec.cu takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from zerohop.examples.matvec.plan import BUFFERS, Plan
from zerohop.examples.matvec.problem import SETS

__all__ = ["client_lanes", "layout_of", "server_lanes"]

_LANE = np.dtype(
    [
        ("queue", "u8"),
        *((name, "u4") for name in ("first", "first_there", "count", "slot", "slot_there", "_")),
    ]
)
_LAYOUT = np.dtype(
    [("batch", "u8"), ("buffer", "u8"), ("products", "u8"), ("sets", "u4"), ("lap", "u4")]
)

Lanes = npt.NDArray[Any]


def layout_of(plan: Plan) -> Any:
    values = plan.batch_nbytes, plan.buffer_nbytes, plan.products_at(0), SETS, plan.lap
    return np.void(np.array(values, _LAYOUT).tobytes())  # a scalar, which CuPy passes by value


def server_lanes(plan: Plan, slots: range, server: int, queue: int, blocks: int) -> Lanes:
    """Of a server with so many blocks. slots: of the segment; queue: address of that to the client."""
    lanes = []
    for block in range(blocks):
        piece = plan.piece(server, block, blocks)
        here, there = plan.slot(0, 0, block), plan.slot(server, 0, block)
        begin = piece.start - plan.share(server).start
        lanes.append((queue, begin, piece.start, len(piece), slots[here], slots[there], 0))
    return np.array(lanes, _LANE)


def client_lanes(plan: Plan, slots: range, queues: Sequence[int], blocks: Sequence[int]) -> Lanes:
    """Of the client, for all blocks of server 0, then those of server 1, ...; each has a queue there."""
    turned = ["queue", "first_there", "first", "count", "slot_there", "slot", "_"]
    theirs = [
        server_lanes(plan, slots, server, queue, blocks[server])
        for server, queue in enumerate(queues)
    ]
    return np.concatenate([lanes[turned].astype(_LANE) for lanes in theirs])


assert _LANE.itemsize == _LAYOUT.itemsize == 32
assert BUFFERS == 2  # as matvec.cu has it
