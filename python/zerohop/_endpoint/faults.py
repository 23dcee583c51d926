"""Injected faults of the software HCA: which, how often, and from which seed."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from zerohop import _core


@dataclass(frozen=True)
class Faults:
    """Faults to inject on the software HCA (``soft0``), so that tests meet them before users do.

        with zh.Endpoint("soft0", faults=zh.Faults(seed=7, drop=0.01, delay=0.002)) as ep: ...
        ep.set_faults(zh.Faults(cut=0.1))  # from now on; None: no more faults

    or ``ZEROHOP_FAULTS=seed=7,drop=0.01,delay=2ms`` for every Endpoint without ``faults=``. The faults apply to what this
    Endpoint's devices send and receive: give them to both ends for both directions. With faults p2p is off unless
    ``p2p=`` is given: p2p uses no device, and so has no faults. Adapters have none (ValueError).

    A queue pair with faults sends packets of at most 64 KiB, numbered and with a checksum (CRC32C), one after the other.
    Rates are probabilities, from 0 to 1, per packet: requests, responses and acknowledgements.

    Args:
        seed: selects the faults. The fate of a packet depends on the seed, the number of the queue
            pair (in the order in which the device created them), the number of its request, or of the request that it
            answers, the number of the packet in that, and the attempt; not on the clock. So the same calls in the same order by one
            thread, on Peers that were connected in the same order, meet the same faults. Each device (rail)
            of several uses the seed of the one before plus one. Two things are not repeatable: how many
            requests one acknowledgement covers, and so which acknowledgements there are; and the times.
        drop: the packet is lost. It is sent again after the ack timeout (``ack_timeout``, 67 ms), at most ``retry_count`` times
            (7). Then the connection ends, and the oldest request with RETRY_EXC_ERR; it was executed if only its
            acknowledgement was lost. Later requests wait.
        duplicate: the packet arrives twice. The receiver knows its number and drops it: no atomic is applied twice.
        corrupt: a bit of it is wrong. The receiver detects that by the checksum before it uses a byte, and drops it; it is
            sent again as if lost. The bits of its length are never changed.
        cut: the connection ends instead of the packet. The other end notices at once.
        partial: a part of the packet's payload arrives and is placed, then the connection ends.
        alter: a bit of the data of a write, or of the response to a read, is wrong before the checksum is computed, as with bad
            memory (not for inline data). The software HCA does not find it: ``integrity=1`` does.
        rnr: a message, or a write with a notification, that this side receives finds no posted receive although there
            is one. It is sent again after ``min_rnr_timer``, at most ``rnr_retry`` times (7, the default: for ever); then
            RNR_RETRY_EXC_ERR.
        delay: how long a packet, and all packets behind it, wait before they are sent, in seconds.
        delay_rate: rate of packets that wait.
        slow: how long this side pauses between two reads of its sockets, in seconds.
        fail: the n-th request posted on a queue pair, counted from 1, is not executed and fails. Requests of the Peer
            itself count, too.
        fail_status: the name or number of the work completion status of ``fail``, ``"REM_OP_ERR"`` (man ibv_poll_cq).
        remove: the device is gone with the n-th request posted on it: DEVICE_FATAL, as if it were unplugged. It stays
            gone: make a new Endpoint.
        max_qp: the most queue pairs of the device (man ibv_query_device); 0: no extra limit. One more is
            refused with ENOMEM, as by a full adapter; existing ones keep working. A Peer has one on each
            device.
        max_cq: the same for completion queues; an Endpoint has one on each device.
        max_mr: the same for memory regions.

    ``ep.stats()["faults"]`` counts the faults; the logger ``zerohop.faults`` logs each (DEBUG).

    Raises ValueError for a value out of range.
    """

    seed: int = 0
    drop: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    cut: float = 0.0
    partial: float = 0.0
    alter: float = 0.0
    rnr: float = 0.0
    delay: float = 0.0
    delay_rate: float = 1.0
    slow: float = 0.0
    fail: int = 0
    fail_status: str | int = "GENERAL_ERR"
    remove: int = 0
    max_qp: int = 0
    max_cq: int = 0
    max_mr: int = 0

    def __post_init__(self) -> None:
        for name, value in _core.fault_words(_written(self)).items():
            object.__setattr__(self, name, value)

    @classmethod
    def parse(cls, text: str) -> Faults:
        """Parses comma-separated settings, as in ``ZEROHOP_FAULTS``; times are 2ms, 50us, 1s or 0.002.

        Raises ValueError, which names the word and the valid ones.
        """
        return cls(**_core.fault_words(text))

    def __str__(self) -> str:
        """The settings that differ from the defaults, in the form of parse()."""
        ours = (field for field in fields(self) if getattr(self, field.name) != field.default)
        return ",".join(f"{field.name}={getattr(self, field.name)}" for field in ours)


def _written(faults: Faults) -> str:
    return ",".join(f"{field.name}={getattr(faults, field.name)}" for field in fields(faults))


def text_of(faults: Faults | str | None) -> str:
    """The text form of an Endpoint's faults, or of the environment's. Raises TypeError, ValueError."""
    if faults is None:
        text = os.environ.get("ZEROHOP_FAULTS", "")
        try:
            return str(Faults.parse(text))
        except ValueError as error:
            raise ValueError(f"ZEROHOP_FAULTS={text!r}: {error}") from None
    if isinstance(faults, str):
        return str(Faults.parse(faults))
    if not isinstance(faults, Faults):
        raise TypeError(f"faults must be a Faults, not {type(faults).__name__}")
    return str(faults)


def goes_wrong(text: str) -> bool:
    """Whether this result of text_of() causes any fault: a seed, a delay rate or a status alone does not."""
    words = {word.partition("=")[0] for word in text.split(",") if word}
    return not words <= {"seed", "delay_rate", "fail_status"}
