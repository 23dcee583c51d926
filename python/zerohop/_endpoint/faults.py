"""Faults on purpose, of the software HCA: which, how often, and from which seed."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from zerohop import _core


@dataclass(frozen=True)
class Faults:
    """What goes wrong on purpose on the software HCA (``soft0``), so that a program meets it before a user does.

        with zh.Endpoint("soft0", faults=zh.Faults(seed=7, drop=0.01, delay=0.002)) as ep: ...
        ep.set_faults(zh.Faults(cut=0.1))  # from now on; None: no more

    or ``ZEROHOP_FAULTS=seed=7,drop=0.01,delay=2ms`` for every Endpoint that is given none. They are faults of what this
    Endpoint's devices send and receive: give them to both ends for both directions. p2p is off where faults are given and
    ``p2p=`` is not: what goes by p2p meets no device, and no fault. Adapters have none (ValueError).

    A queue pair with faults sends packets of 64 KiB at most, numbered and with a checksum (CRC32C), one after the other.
    Rates are probabilities, from 0 to 1, for each packet: of requests, of answers, and of acknowledgements.

    Args:
        seed: decides, with what is sent, what happens. The fate of a packet depends on the seed, the number of the queue
            pair (in the order in which the device got them), the number of the request on it (or whose answer it is),
            which packet of that it is, and which try; not on the clock. So the same calls in the same order by one
            thread, on Peers that were connected in the same order, meet the same faults. Of several devices (rails)
            each has a seed that is one more than that of the one before. Not repeatable is how many
            requests one acknowledgement is for, and so which acknowledgements there are; and what happens when.
        drop: the packet is lost. It is sent again after the ack timeout (``ack_timeout``, 67 ms), ``retry_count`` times at
            most (7); then the connection ends, and the oldest request with RETRY_EXC_ERR: carried out, if only its
            acknowledgement was lost. What is behind it waits.
        duplicate: the packet arrives twice. The receiver knows its number and drops it: no atomic is applied twice.
        corrupt: a bit of it is wrong. The receiver finds that by the checksum before a byte counts, and drops it; it is
            sent again as if lost. The bits that tell how long it is are spared.
        cut: the connection ends instead of the packet. The other end learns of it at once.
        partial: a part of the packet's payload arrives and is placed, then the connection ends.
        alter: a bit of the data of a write, or of the answer to a read, is wrong before the checksum is made, as bad memory
            has it (not of data that goes inline). The software HCA does not find it: ``integrity=1`` does.
        rnr: of a message or a write with a notification that this side receives: it finds no receive posted, though there
            is one, and is sent again after ``min_rnr_timer``, ``rnr_retry`` times at most (7, the default: for ever); then
            RNR_RETRY_EXC_ERR.
        delay: how long a packet waits before it leaves, and all behind it, in seconds.
        delay_rate: of packets that do.
        slow: how long this side waits after it has looked at what came before it looks again, in seconds.
        fail: the n-th request that is posted on a queue pair, from 1 on, is not carried out and fails. Requests of the Peer
            itself count, too.
        fail_status: how: the name or number of a work completion status, ``"REM_OP_ERR"`` (man ibv_poll_cq).
        remove: with the n-th request that is posted on a device that is gone: DEVICE_FATAL, as if it were unplugged. For
            good: it takes a new Endpoint.
        max_qp: how many queue pairs the device has at most (man ibv_query_device); 0: as many as without. One more is
            refused with ENOMEM, as by an adapter that has no more; what is there already goes on. A Peer has one for each
            device.
        max_cq: the same of completion queues, of which an Endpoint has one for each device.
        max_mr: the same of memory regions.

    ``ep.stats()["faults"]`` counts what happened; the logger ``zerohop.faults`` tells each (DEBUG).

    Raises ValueError for what is out of range.
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
        """From words with commas in between, as in ``ZEROHOP_FAULTS``; times are 2ms, 50us, 1s or 0.002.

        Raises ValueError, naming the word and those that there are.
        """
        return cls(**_core.fault_words(text))

    def __str__(self) -> str:
        """The words that differ from none, as parse() takes them."""
        ours = (field for field in fields(self) if getattr(self, field.name) != field.default)
        return ",".join(f"{field.name}={getattr(self, field.name)}" for field in ours)


def _written(faults: Faults) -> str:
    return ",".join(f"{field.name}={getattr(faults, field.name)}" for field in fields(faults))


def text_of(faults: Faults | str | None) -> str:
    """Of what an Endpoint was given, or of the environment. Raises TypeError, ValueError."""
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
    """Whether anything does with these words, as text_of() returns them: a seed, a rate of delays or a status alone is no fault."""
    words = {word.partition("=")[0] for word in text.split(",") if word}
    return not words <= {"seed", "delay_rate", "fail_status"}
