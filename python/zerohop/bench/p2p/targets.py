"""What the figures of p2p should be. Each constant is a line of "Speed" in the issue that asked for it."""

from __future__ import annotations

from collections.abc import Iterator

from zerohop.bench.p2p.plan import BLOCKS_NBYTES, MAPPING_NBYTES
from zerohop.bench.plan import KIB, MIB
from zerohop.bench.rows import DRIVERS, Figures
from zerohop.bench.targets import Verdict, at_least, at_most, unmeasured
from zerohop.host import human_bytes, human_seconds

LARGE = 256 * MIB  # "write of 256 MiB and 1 GiB"
WRITE_RATIOS = {"raw": 0.99, "nccl": 1.05}
NOTIFY_S = {"8 B to 4 KiB": 4.5e-6, "64 KiB": 6e-6, "1 MiB": 9e-6}  # one way, stream to stream
NOTIFY_NBYTES = {"8 B to 4 KiB": range(8, 4 * KIB + 1), "64 KiB": (64 * KIB,), "1 MiB": (MIB,)}
POST_S = 4e-6  # host time of the posting call
MANY = {"write_many_4k": 280e9, "write_many_16k": 320e9, "write_many_64k": 340e9}
HALO_RATIO = 10.0  # to a loop of row copies
READ_RATIO, BOTH_RATIO = 0.95, 1.9  # to writing one way
MAPPING_S = {"first": 2e-3, "cached": 2e-6}
UCX_BANDWIDTH_FROM, UCX_BANDWIDTH_RATIO = 64 * KIB, 0.95
UCX_LATENCY_RATIO = 3.0  # 8 B put, from C++
HOST_NOTIFY_S = {"cpp": 0.5e-6, "python": 3e-6}  # half a round trip


def gpu_verdicts(figures: Figures) -> list[Verdict]:
    """One for each target, in the order of the issue; ours is driven from Python."""
    return [
        *_writes(figures),
        *_notifications(figures),
        *_calls(figures),
        *_lists(figures),
        *_directions(figures),
        *_mappings(figures),
    ]


def host_verdicts(figures: Figures, mapped: bool) -> list[Verdict]:
    """mapped: memory that both processes map; to other memory each write is a system call, for which the
    bounds of write + notify leave no room."""
    found = [*_host_bandwidths(figures), _put_latency(figures)]
    return [*found, *_host_notifications(figures)] if mapped else found


def _writes(figures: Figures) -> Iterator[Verdict]:
    ours = figures.by_size("write", "bandwidth")
    for impl, bound in WRITE_RATIOS.items():
        theirs = figures.by_size("write", "bandwidth", impl)
        yield at_least(f"write from 256 MiB / {impl}", bound, ours, theirs, LARGE)


def _notifications(figures: Figures) -> Iterator[Verdict]:
    """Of each range of sizes the slowest."""
    seconds = figures.by_size("stream_notify", "one_way")
    for label, bound in NOTIFY_S.items():
        found = [seconds[nbytes] for nbytes in seconds if nbytes in NOTIFY_NBYTES[label]]
        target = f"{label} write+notify, stream to stream, one way"
        yield at_most(target, bound, max(found, default=None))


def _calls(figures: Figures) -> Iterator[Verdict]:
    posts = figures.by_size("post_write", "per_call")
    yield at_most("posting a write", POST_S, posts.get(8))
    posts = figures.by_size("stream_notify", "per_call")
    yield at_most("posting a write+notify behind a stream", POST_S, posts.get(8))


def _mappings(figures: Figures) -> Iterator[Verdict]:
    size = human_bytes(MAPPING_NBYTES)
    first, cached, error = (
        figures.by_size("mapping", metric).get(MAPPING_NBYTES)
        for metric in ("first", "cached", "cached_error")
    )
    yield at_most(f"first mapping of {size}", MAPPING_S["first"], first)
    yield at_most(f"cached mapping of {size}", MAPPING_S["cached"], cached, error or 0.0)


def _lists(figures: Figures) -> Iterator[Verdict]:
    for test, bound in MANY.items():
        target = f"{test}, {human_bytes(BLOCKS_NBYTES)} in all >= {bound / 1e9:g} GB/s"
        rate = figures.by_size(test, "bandwidth").get(BLOCKS_NBYTES)
        if rate is None:
            yield unmeasured(target)
        else:
            yield Verdict(target, f"{rate / 1e9:.4g} GB/s", rate >= bound)
    ours, rows = figures.by_size("halo", "bandwidth"), figures.by_size("halo", "bandwidth", "raw")
    yield at_least("halo columns / a loop of row copies", HALO_RATIO, ours, rows, 0)


def _directions(figures: Figures) -> Iterator[Verdict]:
    writing = figures.by_size("write", "bandwidth")
    reading, both = (figures.by_size(test, "bandwidth") for test in ("read", "both"))
    yield at_least("reading from 256 MiB / writing", READ_RATIO, reading, writing, LARGE)
    yield at_least("both directions from 256 MiB / one", BOTH_RATIO, both, writing, LARGE)


def _host_bandwidths(figures: Figures) -> Iterator[Verdict]:
    smallest = UCX_BANDWIDTH_FROM
    for test in ("write", "read"):
        ours = figures.by_size(test, "bandwidth", driver="cpp")
        theirs = figures.by_size(test, "bandwidth", "ucx")
        target = f"{test} bandwidth from {human_bytes(smallest)} / ucx"
        yield at_least(target, UCX_BANDWIDTH_RATIO, ours, theirs, smallest)


def _put_latency(figures: Figures) -> Verdict:
    target = f"8 B write from C++ / ucx put <= {UCX_LATENCY_RATIO:g}"
    ours = figures.get("write_latency", "p50", 8)
    theirs = figures.get("write_latency", "p50", 8, "ucx")
    if ours is None or theirs is None:
        return unmeasured(target)
    measured = f"{ours / theirs:.2f} ({human_seconds(ours)} to {human_seconds(theirs)})"
    return Verdict(target, measured, ours <= UCX_LATENCY_RATIO * theirs)


def _host_notifications(figures: Figures) -> Iterator[Verdict]:
    for driver, bound in HOST_NOTIFY_S.items():
        seconds = figures.get("latency", "p50", 8, driver=driver)
        target = f"8 B write+notify half round trip from {DRIVERS[driver]}"
        yield at_most(target, bound, seconds)
