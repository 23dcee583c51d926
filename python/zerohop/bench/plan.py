"""What `zerohop bench` asks for, an Order, of whom, a Contender, and which sizes it asks for, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from zerohop.bench.placement import FREE

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

FULL_SIZES = (8, 64, 512, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB, GIB)
QUICK_SIZES = (8, 4 * KIB, 64 * KIB, MIB, 16 * MIB)
FULL_SECONDS, QUICK_SECONDS = 0.2, 0.04  # of each turn at a figure, about
DRIVERS = ("cpp", "python")
WINDOW_NBYTES = 32 * MIB  # bandwidth loops keep about so much under way,
LARGEST_WINDOW = 64  # ... at most so many transfers,
SMALLEST_WINDOW = 2  # ... and at least so many
LARGE_NBYTES = 16 * MIB  # beyond, a handful of transfers fills the time of a measurement

Found = dict[str, float]  # a value by metric


class PeerFailed(RuntimeError):
    """A peer that was asked for is missing or failed; the message says what to install or what it said."""


class FigureFailed(PeerFailed):
    """A figure was not taken that should have been: no answer came, or an error."""


@dataclass(frozen=True)
class Options:
    device: str | None = None
    peers: tuple[str, ...] = ()
    quick: bool = False
    sizes: tuple[int, ...] | None = None
    json_path: Path | None = None
    plot_path: Path | None = None
    placements: tuple[str, ...] = (FREE,)
    everything_placed: bool = False  # of wait: its jobs, too
    placement: str = FREE  # of placements, the one that is made ready
    rings: bool = False  # of gda: where those of a queue pair lie


class Order(NamedTuple):
    """One measurement. `nbytes` is the message, or the whole of a write_many; times 0: see `paced`."""

    test: str
    driver: str
    nbytes: int
    times: int


class Step(NamedTuple):
    """One figure, taken `turns` times by everybody in turn, in each pass. times 0: as often as fills the plan's time."""

    test: str
    nbytes: int
    turns: int = 1
    times: int = 0


class Contender:
    """Who measures in one way, ours or a peer's. Each method raises PeerFailed, or RankFailed when it has died."""

    name: str

    def start(self, placement: str = FREE) -> object:
        raise NotImplementedError

    def facts(self) -> Mapping[str, Any]:
        """For the header of the rows; "device", "route" and "reason" of ours, too."""
        raise NotImplementedError

    def measure(self, order: Order, seconds: float) -> Found:
        raise NotImplementedError

    def pause(self) -> None:
        """It is others' turn: its processes take no processor until resume()."""

    def resume(self) -> None: ...

    def finish(self) -> None:
        """An orderly end."""

    def close(self) -> None:
        """An end as it is."""


@dataclass(frozen=True)
class Plan:
    sizes: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()  # sizes that memory does not allow
    seconds: float = 0.0  # of each measurement, about
    rounds: int = 1  # how often ours and theirs take turns at one figure, in each of two passes

    def step(self, test: str, nbytes: int) -> Step:
        """Of large messages a run is long enough to be taken once."""
        return Step(test, nbytes, self.rounds if nbytes <= LARGE_NBYTES else 1)


def make_plan(
    options: Options,
    largest: float,
    quick_sizes: tuple[int, ...] = QUICK_SIZES,
    full_sizes: tuple[int, ...] = FULL_SIZES,
) -> Plan:
    """Sizes as asked for, less those of more than `largest` bytes; the smallest stays."""
    wanted = options.sizes or (quick_sizes if options.quick else full_sizes)
    sizes = tuple(size for size in wanted if size <= largest) or (min(wanted),)
    return Plan(
        sizes=sizes,
        left_out=tuple(size for size in wanted if size not in sizes),
        seconds=QUICK_SECONDS if options.quick else FULL_SECONDS,
        rounds=1 if options.quick else 2,
    )


def first_times(test: str, nbytes: int) -> int:
    """How often a measurement's first run does it: that run learns the pace, and may be enough."""
    if test.endswith("latency"):
        return 4 if nbytes <= LARGE_NBYTES else 1
    return window(nbytes) * (2 if nbytes <= LARGE_NBYTES else 1)


def window(nbytes: int) -> int:
    """How many transfers of `nbytes` a bandwidth loop keeps under way."""
    return max(SMALLEST_WINDOW, min(LARGEST_WINDOW, WINDOW_NBYTES // max(1, nbytes)))
