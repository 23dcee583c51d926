"""How long `zerohop bench` measures, and which sizes; the tests of each command are told there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from zerohop.bench.placement import FREE

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

FULL_SIZES = (8, 64, 512, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB, GIB)
QUICK_SIZES = (8, 4 * KIB, 64 * KIB, MIB, 16 * MIB)
FULL_SECONDS, QUICK_SECONDS = 0.2, 0.04  # of each turn at a figure, about
BLOCK_TESTS = {"write_many_4k": 4 * KIB, "write_many_64k": 64 * KIB}  # test: bytes of a block
FULL_BLOCKS = (16, 256, 4096)
QUICK_BLOCKS = (256,)
SIZED_TESTS = ("latency", "write", "read", "send")
DRIVERS = ("cpp", "python")
VIEWS = 10_000  # of one tensor, each registered
WINDOW_NBYTES = 32 * MIB  # bandwidth loops keep about so much under way,
LARGEST_WINDOW = 64  # ... at most so many transfers,
SMALLEST_WINDOW = 2  # ... and at least so many
LARGE_NBYTES = 16 * MIB  # beyond, a handful of transfers fills the time of a measurement
ARENA_SHARE_OF_FREE = 0.2  # each of two workers holds one arena; the peers' processes need as much


@dataclass(frozen=True)
class Options:
    device: str | None = None
    peers: tuple[str, ...] = ()
    quick: bool = False
    sizes: tuple[int, ...] | None = None
    json_path: Path | None = None
    plot_path: Path | None = None
    placements: tuple[str, ...] = ()  # those that are tried; none: what the command takes by itself
    placement: str = FREE  # the one that is made ready
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


@dataclass(frozen=True)
class Plan:
    sizes: tuple[int, ...]
    left_out: tuple[int, ...]  # sizes that memory does not allow
    blocks: tuple[int, ...]  # how many blocks a write_many has
    seconds: float  # of each measurement, about
    rounds: int  # how often ours and theirs take turns at one figure, in each of two passes
    idle_peers: tuple[int, ...]
    ucx_ranks: tuple[int, ...]  # percentiles of UCX's latency: a run each

    @property
    def arena_nbytes(self) -> int:
        largest_many = max(BLOCK_TESTS.values()) * max(self.blocks)
        return max(*self.sizes, largest_many)

    def step(self, test: str, nbytes: int) -> Step:
        """Of large messages a run is long enough to be taken once."""
        return Step(test, nbytes, self.rounds if nbytes <= LARGE_NBYTES else 1)


def make_plan(options: Options, free: int) -> Plan:
    """Sizes as asked for, less those for which `free` bytes of memory do not suffice."""
    return plan_of(options, int(free * ARENA_SHARE_OF_FREE), QUICK_SIZES)


def plan_of(options: Options, largest: int, quick_sizes: tuple[int, ...]) -> Plan:
    """Sizes as asked for, less those of more than `largest` bytes."""
    wanted = options.sizes or (quick_sizes if options.quick else FULL_SIZES)
    sizes = tuple(size for size in wanted if size <= largest)
    return Plan(
        sizes=sizes or (min(wanted),),
        left_out=tuple(size for size in wanted if size > largest and size != min(wanted)),
        blocks=QUICK_BLOCKS if options.quick else FULL_BLOCKS,
        seconds=QUICK_SECONDS if options.quick else FULL_SECONDS,
        rounds=1 if options.quick else 2,
        idle_peers=(100,) if options.quick else (100, 1000),
        ucx_ranks=(50, 99) if options.quick else (50, 90, 99),
    )


def first_times(test: str, nbytes: int) -> int:
    """How often a measurement's first run does it: that run learns the pace, and may be enough."""
    if test.endswith("latency"):
        return 4 if nbytes <= LARGE_NBYTES else 1
    return window(nbytes) * (2 if nbytes <= LARGE_NBYTES else 1)


def window(nbytes: int) -> int:
    """How many transfers of `nbytes` a bandwidth loop keeps under way."""
    return max(SMALLEST_WINDOW, min(LARGEST_WINDOW, WINDOW_NBYTES // max(1, nbytes)))
