"""The numbers that tune an Endpoint's device and queue pairs: defaults, ranges, environment."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import SupportsIndex, TypedDict

from zerohop import _core


class Knobs(TypedDict, total=False):
    """The keywords, for type checkers; KNOBS explains them."""

    port_num: int
    gid_index: int
    roce_version: int
    rdma_cm: int
    mtu: int
    pkey_index: int
    service_level: int
    traffic_class: int
    hop_limit: int
    ack_timeout: int
    retry_count: int
    rnr_retry: int
    min_rnr_timer: int
    rd_atomic: int
    inline_bytes: int
    send_depth: int
    message_slots: int
    message_bytes: int
    max_peers: int
    integrity: int
    p2p: int
    stripe_bytes: int
    relaxed_ordering: int
    staging_chunk: int
    registration_cache: int
    registration_cache_entries: int


@dataclass(frozen=True)
class Knob:
    name: str
    default: int
    allowed: range | tuple[int, ...]
    meaning: str

    @property
    def variable(self) -> str:
        return "ZEROHOP_" + self.name.upper()

    def check(self, value: object, source: str) -> int:
        """`source`: the name to use in the message. Raises TypeError, ValueError."""
        misplaced_bool = isinstance(value, bool) and not self.is_switch
        if misplaced_bool or not isinstance(value, SupportsIndex):
            raise TypeError(f"{source} must be an int, not {type(value).__name__}")
        number = operator.index(value)
        if number not in self.allowed:
            raise ValueError(f"{source} must be {self.allowed_text}, not {number}")
        return number

    @property
    def is_switch(self) -> bool:
        """Whether 0 and 1 mean no and yes; then False and True are allowed, too."""
        return isinstance(self.allowed, tuple) and {0, 1} <= set(self.allowed)

    @property
    def allowed_text(self) -> str:
        if isinstance(self.allowed, range):
            return f"from {self.allowed.start} to {self.allowed.stop - 1}"
        return "one of " + ", ".join(map(str, self.allowed))


KNOBS = (
    Knob(
        "port_num",
        0,
        range(256),
        "port of the device; 0: the first that is active and has a GID of the kind",
    ),
    Knob(
        "gid_index",
        -1,
        range(-1, 256),
        "entry of the port's GID table; a queue pair can use the first 256; -1: the one that "
        "reaches farthest (an IPv4 address before a global IPv6 address before link-local ones)",
    ),
    Knob(
        "roce_version",
        2,
        (1, 2),
        "kind of GID on Ethernet; 1 reaches only the same network segment",
    ),
    Knob(
        "rdma_cm",
        0,
        (0, 1),
        "1: rdma_cm connects the queue pairs, at both ends, where a network wants it: the kernel chooses path and "
        "priority (rdma_cm(7)), and service_level and hop_limit do not count; RoCE v2 only. Queue pairs that kernels "
        "drive are connected by their addresses all the same. iWARP devices always use rdma_cm",
    ),
    Knob(
        "mtu",
        4096,
        (256, 512, 1024, 2048, 4096),
        "largest path MTU in bytes; the ports of both ends may lower it",
    ),
    Knob("pkey_index", 0, range(65536), "entry of the port's partition table"),
    Knob("service_level", 0, range(16), "InfiniBand service level; RoCE: the 802.1p priority"),
    Knob("traffic_class", 0, range(256), "of the GRH; RoCE v2: the IP header's type of service"),
    Knob("hop_limit", 255, range(1, 256), "of the GRH: the largest number of routers on the way"),
    Knob(
        "ack_timeout",
        14,
        range(1, 32),
        "an acknowledgement times out after 4.096 us * 2**ack_timeout (14: 67 ms)",
    ),
    Knob("retry_count", 7, range(8), "how often to send an unacknowledged packet again"),
    Knob(
        "rnr_retry",
        7,
        range(8),
        "how often to retry a receiver that is not ready, as when more messages arrive than it has buffers; 7: for ever",
    ),
    Knob(
        "min_rnr_timer",
        12,
        range(32),
        "code of the delay that such a receiver asks for (12: 0.64 ms)",
    ),
    Knob(
        "rd_atomic",
        255,
        range(1, 256),
        "most reads and atomics outstanding; both devices may lower it",
    ),
    Knob(
        "inline_bytes",
        64,
        range(1025),
        "largest payload that is copied into a work request instead of fetched",
    ),
    Knob("send_depth", 256, range(1, 16385), "most work requests that a Peer has posted"),
    Knob(
        "message_slots",
        _core.DEFAULT_MESSAGE_SLOTS,
        range(1, 4097),
        "messages and notifications that each Peer may have on their way to this Endpoint, on each device; "
        "each of the first Peers adds message_slots + 5 receive buffers of message_bytes per device, up to 512, "
        "which all Peers share (on iWARP 16384, which they do not; see zerohop scale)",
    ),
    Knob(
        "message_bytes",
        _core.DEFAULT_MESSAGE_BYTES,
        range(64, (1 << 20) + 1),
        "payload of a send() that travels in the message itself; a larger one is read from its array once a recv() "
        "takes it. The smaller value of the two ends counts",
    ),
    Knob(
        "max_peers",
        0,
        range(1 << 20),
        "most Peers at a time, whichever side connected; one more is refused at both ends, with an error that says "
        "so. 0: as many as the device and the system allow",
    ),
    Knob(
        "integrity",
        0,
        (0, 1),
        "1: transfers between this Endpoint and its peers are checked end to end, on every route: both ends compute "
        "checksums (CRC32C) of their arrays, even if the peer has 0, and IntegrityError names the bytes that "
        "differ; notifications follow the check (see docs/integrity.md)",
    ),
    Knob(
        "p2p",
        1,
        (0, 1),
        "1: between processes of one user on one host memory is copied without a device, unless the "
        "peer has 0. The CPU copies host memory: the peer maps memory of Endpoint.empty(), and reaches other "
        "memory by process_vm_writev(2). GPUs copy between each other's memory and to and from host "
        "memory. Such a peer is trusted to keep to its bounds (see docs/guarantees.md). 0: only the device is used",
    ),
    Knob(
        "stripe_bytes",
        1 << 20,
        range(1 << 31),
        "on several devices: a transfer of more bytes is split into one share for each",
    ),
    Knob(
        "relaxed_ordering",
        2,
        (0, 1, 2),
        "whether writes to GPU memory may pass each other on PCIe; 0: no, 1: yes, and "
        "register() fails if the adapter refuses, 2: unless the adapter refuses. A kernel or driver "
        "that does not know the flag ignores it silently (man ibv_reg_mr: an optional access flag), so "
        "asking for it says nothing about speed. In any case the data of a completed Transfer, or of "
        "a notification, is in place. With relaxed ordering, writes to "
        "the same bytes that are posted without waiting in between have no order",
    ),
    Knob(
        "staging_chunk",
        _core.DEFAULT_STAGING_CHUNK,
        tuple(1 << n for n in range(16, 21)),
        "bytes copied at a time between a GPU and pinned host memory, if no adapter reaches "
        "GPU memory; 16 such chunks are pinned for each GPU in use, with adapters for each of its Peers",
    ),
    Knob(
        "registration_cache",
        1024,
        range(1 << 20),
        "MiB of GPU memory that stay registered while unused, and are freed only after that; each lookup "
        "asks the driver about every chunk of the memory (an array of cudaMalloc has one)",
    ),
    Knob(
        "registration_cache_entries",
        _core.DEFAULT_CACHE_ENTRIES,
        range(1 << 20),
        "most registrations of GPU memory that stay while unused, whatever their size",
    ),
)


# Keywords of an Endpoint besides the knobs.
KEYWORDS = (
    "device",
    "timeout",
    "name",
    "spin",
    "host",
    "local_rank",
    "registration",
    "metrics",
    "faults",
)
# All environment variables; `name` has none, because Endpoints must not share a name.
VARIABLES = (
    *(f"ZEROHOP_{word.upper()}" for word in KEYWORDS if word != "name"),
    *(knob.variable for knob in KNOBS),
)
OF_WORLDS = ("ZEROHOP_COLLECTIVES",)
_PREFIX = "ZEROHOP_"
_OF_TESTS = ("ZEROHOP_TEST_", "ZEROHOP_GPU_ROWS")


def misspelt(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that look like settings but are not, each with the most similar setting, or ""."""
    found = [
        name
        for name in sorted(environment)
        if name.startswith(_PREFIX)
        and name not in (*VARIABLES, *OF_WORLDS)
        and not name.startswith(_OF_TESTS)
    ]
    if not found:
        return {}
    from difflib import get_close_matches  # few processes need it

    # Without the prefix, which makes all of them similar.
    words = [name.removeprefix(_PREFIX) for name in VARIABLES]
    near = {name: get_close_matches(name.removeprefix(_PREFIX).upper(), words, 1) for name in found}
    return {name: _PREFIX + close[0] if close else "" for name, close in near.items()}


_warned = False  # warn of misspelt variables once per process


def warn_of_misspelt(stacklevel: int) -> None:
    """A RuntimeWarning for each, from the first Endpoint of the process: the variable has no effect."""
    global _warned
    if _warned:
        return
    _warned = True
    for name, near in misspelt(os.environ).items():
        hint = f": did you mean {near}?" if near else ""
        message = f"{name} is not a setting of zerohop and is ignored{hint}"
        warnings.warn(message, RuntimeWarning, stacklevel=stacklevel + 1)


def chosen(
    given: Mapping[str, object],
    environment: Mapping[str, str] = os.environ,
    defaults: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Every knob by name: the keyword, else its variable, else `defaults`, else the knob's default.

    Raises TypeError (unknown keyword, not an int) and ValueError (out of range).
    """
    unknown = set(given) - {knob.name for knob in KNOBS}
    if unknown:
        names = ", ".join([*KEYWORDS, *(knob.name for knob in KNOBS)])
        raise TypeError(f"Endpoint has no keyword {min(unknown)!r}: it has {names}")
    others = {} if defaults is None else defaults
    return {
        knob.name: _value(
            knob, given.get(knob.name), environment, others.get(knob.name, knob.default)
        )
        for knob in KNOBS
    }


def _value(knob: Knob, given: object, environment: Mapping[str, str], default: int) -> int:
    if given is not None:
        return knob.check(given, knob.name)
    text = environment.get(knob.variable, "")
    if not text:
        return default
    try:
        number = int(text, 0)
    except ValueError:
        raise ValueError(
            f"{knob.variable}={text!r} is not a whole number: correct or unset it"
        ) from None
    return knob.check(number, f"{knob.variable} (environment)")
