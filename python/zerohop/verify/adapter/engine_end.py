"""One end of a verification by the package's own engine: an Endpoint of the device, and memory that it shares."""

from __future__ import annotations

import time

import numpy as np

from zerohop._core import Memory, Peer, RemoteMemory
from zerohop.endpoint import Endpoint
from zerohop.verify.adapter.end import compare, pattern, split_device
from zerohop.verify.adapter.step import Failed

TIMEOUT_S = 10.0
NBYTES = 4 << 20
NAME = "verify/adapter"
BLOCKS, BLOCK_NBYTES = 64, 64  # of notifications: data and a slot each
CREDIT_SLOT = BLOCKS  # of the end that notifies: how far the other one is
CREDIT_ROUNDS = BLOCKS // 4  # between two credits
SHORT_S = 1.0  # of a wait, in a loop with a bound of its own


def open_endpoint(device: str) -> Endpoint:
    """Never by p2p: this is about the device."""
    name, port = split_device(device)
    return Endpoint(name, p2p=0, timeout=TIMEOUT_S, port_num=port)


class EngineEnd:
    def __init__(self, device: str) -> None:
        self.endpoint = open_endpoint(device)
        self.memory = self.endpoint.empty(NBYTES)
        self.array = np.asarray(self.memory)
        self.endpoint.share(NAME, self.memory)

    def address(self) -> str:
        return self.endpoint.address.hex()

    def close(self) -> None:
        self.endpoint.close(0)

    def differs(self, seed: int, nbytes: int, offset: int) -> str:
        """As of End."""
        wanted = np.zeros(NBYTES, np.uint8)
        wanted[offset : offset + nbytes] = pattern(seed, nbytes)
        return compare(self.array, wanted)

    def take_notification(self, slot: int, seconds: float) -> int:
        return self.endpoint.wait_notify(slot, seconds)

    def hear(self, rounds: int, seconds: float) -> int:
        """How many notifications came, each behind its data, until the one of value `rounds`."""
        peer = self.endpoint.accept(TIMEOUT_S)
        blocks = [
            self.array[at : at + BLOCK_NBYTES].view(np.uint32)
            for at in range(0, BLOCKS * BLOCK_NBYTES, BLOCK_NBYTES)
        ]
        wait = self.endpoint.wait_notify
        until = time.monotonic() + seconds
        for number in range(1, rounds + 1):
            place = number % BLOCKS
            value = wait(place, max(0.0, until - time.monotonic()))
            stop = value & LAST
            if value & ~LAST != number:
                raise Failed(f"notification {number} had the value {value & ~LAST}")
            block = blocks[place]
            if not (block == number).all():
                raise Failed(
                    f"notification {number} was seen before its data: {int((block != number).sum())} of {block.size} "
                    f"words were older, the first is {int(block[block != number][0])}",
                    "report this at once: data behind which a notification is seen must be there",
                )
            if number % CREDIT_ROUNDS == 0:
                peer.notify(CREDIT_SLOT, number)
            if stop:
                return number
        return rounds


LAST = 1 << 31  # in a notification's value: no more come


class Notifier:
    """The end that notifies, of hear()."""

    def __init__(self, end: EngineEnd, peer: Peer, remote: RemoteMemory) -> None:
        self._end, self._peer = end, peer
        places = range(0, BLOCKS * BLOCK_NBYTES, BLOCK_NBYTES)
        self._blocks = [end.array[at : at + BLOCK_NBYTES].view(np.uint32) for at in places]
        self._near: list[Memory] = [end.memory[at : at + BLOCK_NBYTES] for at in places]
        self._far: list[RemoteMemory] = [remote[at : at + BLOCK_NBYTES] for at in places]

    def notify(self, rounds: int, seconds: float) -> int:
        """Writes, each with a notification, `rounds` of them or as many as `seconds` allow; how many."""
        write, clock = self._peer.write, time.monotonic
        credit = 0
        until = clock() + seconds
        for number in range(1, rounds + 1):
            place = number % BLOCKS
            while number - credit > BLOCKS - CREDIT_ROUNDS:
                credit = self._end.endpoint.wait_notify(CREDIT_SLOT, TIMEOUT_S)
            last = number == rounds or (number % BLOCKS == 0 and clock() > until)
            self._blocks[place].fill(number)
            transfer = write(
                self._near[place], self._far[place], notify=(place, number | (LAST if last else 0))
            )
            if last:
                transfer.wait()
                return number
        return rounds
