"""One end of a verification: queue pairs of a device, and memory in two halves, to send from and to receive into.

What the near end asks of the far one are calls of these methods with plain values (far.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from zerohop import _core, verbs
from zerohop.verify.adapter.step import Failed

HALF = 2 << 20  # bytes
QUEUE_DEPTH = 1024  # of each completion queue
WAIT_S = 5.0  # for completions
CHUNK_NBYTES = 4096  # the size of a message's buffer
LOOKS = 256  # polls between two clock readings
Bytes = npt.NDArray[np.uint8]
Completion = list[Any]  # wr_id, status, opcode, byte_len, imm_data, index of the queue pair


def split_device(text: str) -> tuple[str, int]:
    """ "mlx5_0:2" is port 2 of mlx5_0; 0: the first one that is active."""
    name, colon, port = text.rpartition(":")
    return (name, int(port)) if colon and "@" not in text and port.isdecimal() else (text, 0)


def pattern(seed: int, nbytes: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


class End:
    def __init__(self, device: str) -> None:
        name, port = split_device(device)
        self.device = verbs.Device(name, port=port)
        self.domain = self.device.pd()
        self.array = np.zeros(2 * HALF, np.uint8)
        self.pairs: list[verbs.QueuePair] = []
        self.queue: verbs.CompletionQueue
        self.receives: verbs.CompletionQueue
        self.shared: verbs.SharedReceiveQueue | None = None

    @cached_property
    def region(self) -> verbs.MemoryRegion:
        return self.domain.register(self.array)

    def memory(self) -> tuple[int, int]:
        """Address and key of the half to receive into."""
        address, key = self.region[HALF:].remote
        return address, key

    def open(self, count: int = 1, shared: int = 0, **options: Any) -> list[str]:
        """New queue pairs, in RESET, in place of the last ones; their addresses. shared: depth of an SRQ, 0 for none."""
        self.pairs = []
        self.array.fill(0)
        self.queue = verbs.CompletionQueue(self.device, QUEUE_DEPTH)
        self.receives = verbs.CompletionQueue(self.device, QUEUE_DEPTH)
        self.shared = verbs.SharedReceiveQueue(self.domain, shared) if shared else None
        queues = self.queue, self.receives
        self.pairs = [
            verbs.QueuePair(self.domain, *queues, srq=self.shared, **options) for _ in range(count)
        ]
        return [pair.address().to_bytes().hex() for pair in self.pairs]

    def connect(self, addresses: Sequence[str]) -> None:
        for pair, address in zip(self.pairs, addresses, strict=True):
            pair.connect(verbs.QueuePairAddress.from_bytes(bytes.fromhex(address)))

    def offer(self, count: int, first: int = 0, index: int = 0) -> None:
        """Receives number `first` and the next ones, each with its own chunk; of the SRQ if there is one."""
        for number in range(first, first + count):
            begin = HALF + number * CHUNK_NBYTES
            landing = self.region[begin : begin + CHUNK_NBYTES]
            if self.shared is not None:
                self.shared.post_receive(landing, wr_id=number)
            else:
                self.pairs[index].post_receive(landing, wr_id=number)

    def take_received(self, count: int, seconds: float = WAIT_S) -> list[Completion]:
        return self._plain(take(self.receives, count, seconds))

    def take_sent(self, count: int = 1, seconds: float = WAIT_S) -> None:
        """Raises Failed if one of them has failed."""
        completions = take(self.queue, count, seconds)
        for completion in completions:
            if not completion.ok:
                raise Failed(f"{completion.status}: {completion.help}")
        if len(completions) < count:
            raise Failed(
                f"{len(completions)} of {count} requests were completed in {seconds:g} s",
                "see whether the other end is reachable by the GIDs that this report names",
            )

    def poll_sent(self) -> list[Completion]:
        return self._plain(self.queue.poll(64))

    def fill(self, seed: int, nbytes: int, offset: int = 0) -> None:
        """Puts a pattern at `offset` of the half to receive into."""
        self.array[HALF + offset :][:nbytes] = pattern(seed, nbytes)

    def differs(self, seed: int, nbytes: int, offset: int = 0) -> str:
        """What is wrong if the pattern is there, and zeros in all the rest of that half; "" if nothing is."""
        wanted = np.zeros(HALF, np.uint8)
        wanted[offset : offset + nbytes] = pattern(seed, nbytes)
        return compare(self.array[HALF:], wanted)

    def differs_in_chunks(self, seeds: Sequence[int], nbytes: int) -> str:
        """As differs(), of patterns at the start of the first chunks."""
        wanted = np.zeros(HALF, np.uint8)
        for number, seed in enumerate(seeds):
            wanted[number * CHUNK_NBYTES :][:nbytes] = pattern(seed, nbytes)
        return compare(self.array[HALF:], wanted)

    def word(self, offset: int = 0) -> int:
        return int(self.array[HALF + offset :][:8].view(np.uint64)[0])

    def set_word(self, value: int, offset: int = 0) -> None:
        self.array[HALF + offset :][:8].view(np.uint64)[0] = value

    def ping_pong(
        self, memory: tuple[int, int], nbytes: int, times: int, first: bool, seconds: float
    ) -> list[float]:
        """Seconds of each half round trip; the other end runs it at the same time."""
        request = verbs.SendRequest("write", self.region[:nbytes], remote=memory)
        ball, landing = self.array[:nbytes], self.array[HALF : HALF + nbytes]
        pair, queue = self.pairs[0], self.queue
        return _core.bench_verbs_ping_pong(
            pair, queue, request, ball, landing, times, first, seconds
        )

    def _plain(self, completions: Sequence[verbs.WC]) -> list[Completion]:
        numbers = [pair.number for pair in self.pairs]
        return [
            [c.wr_id, c.status, c.opcode, c.byte_len, c.imm_data, numbers.index(c.qp_num)]
            for c in completions
        ]


def take(queue: verbs.CompletionQueue, count: int, seconds: float) -> list[verbs.WC]:
    """`count` completions, or those that came in `seconds`, or fewer behind one that failed."""
    found: list[verbs.WC] = []
    until = time.monotonic() + seconds
    while len(found) < count and all(c.ok for c in found):
        queue.arm()
        found += queue.poll(count - len(found))
        left = until - time.monotonic()
        if len(found) < count and (left <= 0 or not queue.wait(left)):
            found += queue.poll(count - len(found))
            break
    return found


def compare(found: Bytes, wanted: Bytes) -> str:
    """Which bytes differ; "" if none do."""
    places = np.flatnonzero(found != wanted)
    if not places.size:
        return ""
    first = int(places[0])
    return (
        f"{places.size} of {wanted.size} bytes differ, first byte {first}: "
        f"{found[first]:#04x} instead of {wanted[first]:#04x}"
    )
