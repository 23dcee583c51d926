"""What lies where: the parts of the segment, the share of each server, and slots.

The client's part: SETS batches of vectors, then the products of as many batches as `lap` says, each in a place of its
own, so that all of them can be checked once no time is taken. A server's part: two buffers of vectors and two of products,
each of them the server's share of a batch.

A batch is known by its number, from 0; the notifications that announce it, and those that answer it, have the value
number + 1. Numbers take two buffers and two slots in turns. The client sends a batch only when the one two before it has
been answered, and an answer says that the vectors it is of are not needed any more: so neither buffer nor slot
is written before it is free, and there is no other credit.
"""

from __future__ import annotations

from dataclasses import dataclass

from zerohop.examples.matvec.problem import NBYTES, SETS

__all__ = ["BUFFERS", "MOST_BLOCKS", "SLOTS", "STOP", "Plan"]

BUFFERS = 2
STOP = 2**32 - 1  # in the place of a batch: the server ends
MOST_BLOCKS = (
    128  # that a server has; a batch of 15360 then gives each 120 vectors, 15 KB at a time
)
SLOTS = BUFFERS * MOST_BLOCKS  # of each server, on its board and on the client's
_PRODUCTS_NBYTES = 64 << 20  # of a lap


@dataclass(frozen=True)
class Plan:
    batch: int  # vectors
    servers: int

    @property
    def batch_nbytes(self) -> int:
        return self.batch * NBYTES

    @property
    def lap(self) -> int:
        """How many batches are sent before the client checks them."""
        return max(BUFFERS, _PRODUCTS_NBYTES // self.batch_nbytes)

    def share(self, server: int) -> range:
        """Of the vectors of a batch; server from 0."""
        return _piece(range(self.batch), server, self.servers)

    def piece(self, server: int, block: int, blocks: int) -> range:
        """That part of a server's share which one of its blocks has."""
        return _piece(self.share(server), block, blocks)

    @property
    def buffer_nbytes(self) -> int:
        """The largest share."""
        return -(-self.batch // self.servers) * NBYTES

    @property
    def client_nbytes(self) -> int:
        return self.products_at(0) + self.lap * self.batch_nbytes

    @property
    def server_nbytes(self) -> int:
        return 2 * BUFFERS * self.buffer_nbytes

    @property
    def notifications(self) -> int:
        """SLOTS of each server, and one by which each tells how many blocks it has."""
        return (SLOTS + 1) * self.servers

    def blocks_slot(self, server: int) -> int:
        return SLOTS * self.servers + server

    def slot(self, server: int, number: int, block: int = 0) -> int:
        """On the client's board; on the server's it is that of server 0."""
        return SLOTS * server + BUFFERS * block + number % BUFFERS

    # --- offsets in bytes; of the client's part ---

    def vectors_at(self, number: int) -> int:
        return number % SETS * self.batch_nbytes

    def products_at(self, number: int) -> int:
        return SETS * self.batch_nbytes + number % self.lap * self.batch_nbytes

    # --- of a server's part ---

    def buffer_at(self, number: int) -> int:
        return number % BUFFERS * self.buffer_nbytes

    def answer_at(self, number: int) -> int:
        return (BUFFERS + number % BUFFERS) * self.buffer_nbytes


def _piece(whole: range, number: int, count: int) -> range:
    """One of `count` pieces that are equally long, or one longer than others."""
    first, end = (whole.start + len(whole) * edge // count for edge in (number, number + 1))
    return range(first, end)
