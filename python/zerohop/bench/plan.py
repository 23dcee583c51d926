"""Order, one measurement; Contender, the program measured; and the sizes and times of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from zerohop.bench.placement import FREE

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

FULL_SIZES = (8, 64, 512, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB, GIB)
QUICK_SIZES = (8, 4 * KIB, 64 * KIB, MIB, 16 * MIB)
FULL_SECONDS, QUICK_SECONDS = 0.2, 0.04  # approximate time of each turn at a figure
DRIVERS = ("cpp", "python")
WINDOW_NBYTES = 32 * MIB  # bandwidth loops keep about this much in flight,
LARGEST_WINDOW = 64  # ... with at most this many transfers
SMALLEST_WINDOW = 2  # ... and at least this many
LARGE_NBYTES = 16 * MIB  # above this, a few transfers fill the time of a measurement

Found = dict[str, float]  # metric: value


class PeerFailed(RuntimeError):
    """A requested peer is missing or failed; the message has the remedy or the peer's own message."""


class FigureFailed(PeerFailed):
    """A figure could not be taken although it should work: no answer, or an error."""


@dataclass(frozen=True)
class Options:
    device: str | None = None
    peers: tuple[str, ...] = ()
    quick: bool = False
    sizes: tuple[int, ...] | None = None
    json_path: Path | None = None
    plot_path: Path | None = None
    placements: tuple[str, ...] = (FREE,)
    everything_placed: bool = False  # in `wait`: the jobs, too
    placement: str = FREE  # the current one of placements
    ranks: tuple[int, ...] | None = None  # in `collectives`: of the jobs
    rings: bool = False  # in `gda`: show where the rings of a queue pair lie


class Order(NamedTuple):
    """One measurement. `nbytes`: size of the message, or of a whole write_many; times 0: see `paced`."""

    test: str
    driver: str
    nbytes: int
    times: int


class Step(NamedTuple):
    """One figure, taken by everyone in turn, `turns` times per pass. times 0: as often as fits the plan's time."""

    test: str
    nbytes: int
    turns: int = 1
    times: int = 0


class Contender:
    """A program that is measured, ours or a peer's. Each method raises PeerFailed, or RankFailed if it has died."""

    name: str

    def start(self, placement: str = FREE) -> object:
        raise NotImplementedError

    def facts(self) -> Mapping[str, Any]:
        """For the header of the rows; ours also has "device", "route" and "reason"."""
        raise NotImplementedError

    def measure(self, order: Order, seconds: float) -> Found:
        raise NotImplementedError

    def pause(self) -> None:
        """Another contender's turn: its processes use no CPU until resume()."""

    def resume(self) -> None: ...

    def finish(self) -> None:
        """Ends it in order."""

    def close(self) -> None:
        """Ends it at once."""


@dataclass(frozen=True)
class Plan:
    sizes: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()  # sizes that do not fit into memory
    seconds: float = 0.0  # approximate time of each measurement
    rounds: int = 1  # turns of each contender at one figure, in each of two passes

    def step(self, test: str, nbytes: int) -> Step:
        """For large messages one turn is long enough."""
        return Step(test, nbytes, self.rounds if nbytes <= LARGE_NBYTES else 1)


def make_plan(
    options: Options,
    largest: float,
    quick_sizes: tuple[int, ...] = QUICK_SIZES,
    full_sizes: tuple[int, ...] = FULL_SIZES,
) -> Plan:
    """The requested sizes up to `largest` bytes, and always the smallest one."""
    wanted = options.sizes or (quick_sizes if options.quick else full_sizes)
    sizes = tuple(size for size in wanted if size <= largest) or (min(wanted),)
    return Plan(
        sizes=sizes,
        left_out=tuple(size for size in wanted if size not in sizes),
        seconds=QUICK_SECONDS if options.quick else FULL_SECONDS,
        rounds=1 if options.quick else 2,
    )


def first_times(test: str, nbytes: int) -> int:
    """Repetitions of a measurement's first run, which finds the pace, and may be enough."""
    if test.endswith("latency"):
        return 4 if nbytes <= LARGE_NBYTES else 1
    return window(nbytes) * (2 if nbytes <= LARGE_NBYTES else 1)


def percentiles(samples: Sequence[float] | npt.NDArray[np.float64]) -> Found:
    """The median and the 99th percentile of samples, which are not empty, and their mean."""
    p50, p99 = map(float, np.percentile(samples, (50, 99)))
    return {"p50": p50, "p99": p99, "mean": float(np.mean(samples))}


def window(nbytes: int) -> int:
    """How many transfers of `nbytes` a bandwidth loop keeps in flight."""
    return max(SMALLEST_WINDOW, min(LARGEST_WINDOW, WINDOW_NBYTES // max(1, nbytes)))
