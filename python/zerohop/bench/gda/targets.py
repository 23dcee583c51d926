"""What the figures of kernels that communicate should be. Each constant is a line of "Speed" in the issue that asked for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zerohop.bench.gda.plan import (
    DRIVER,
    RING_WAYS,
    SHAPES,
    VALUE_NBYTES,
    WIDE_NBYTES,
    WORD_NBYTES,
)
from zerohop.bench.plan import KIB
from zerohop.bench.rows import Figures
from zerohop.bench.targets import Verdict, at_least, at_most, unmeasured
from zerohop.host import human_bytes, human_seconds

ONE_WAY_S = {8: 1.6e-6, 64 * KIB: 3.5e-6}
COPY_RATIO = 0.95  # to a bare copy by as many threads
HOST_RATIO = 10.0  # to writes that the host drives
POST_S = 1e-6
LANES, LANES_RATIO = 32, 8.0  # so many threads post at least so many times as fast as one


def verdicts(figures: Figures) -> list[Verdict]:
    return [
        *_one_ways(figures),
        *_bandwidths(figures),
        *_rates(figures),
        *_beside_nvshmem(figures),
        *_entries(figures),
    ]


def _one_ways(figures: Figures) -> Iterator[Verdict]:
    ours = figures.by_size("put_notify", "one_way")
    for nbytes, bound in ONE_WAY_S.items():
        who = "a thread" if nbytes == min(ONE_WAY_S) else "a block"
        target = f"{human_bytes(nbytes)} put_notify by {who}, one way"
        yield at_most(target, bound, ours.get(nbytes))


def _bandwidths(figures: Figures) -> Iterator[Verdict]:
    ours, bare = (figures.by_size("put_wide", "bandwidth", impl) for impl in ("zerohop", "bare"))
    target = f"{human_bytes(WIDE_NBYTES)} put by a kernel / a bare copy"
    yield at_least(target, COPY_RATIO, ours, bare, WIDE_NBYTES)


def _rates(figures: Figures) -> Iterator[Verdict]:
    """The host's better loop."""
    ours = figures.by_size("puts_132x512", "rate")
    found = [
        figures.get(f"host_puts_{driver}", "rate", VALUE_NBYTES, driver=driver)
        for driver in ("python", "cpp")
    ]
    host = {VALUE_NBYTES: max(rate for rate in found if rate)} if any(found) else {}
    yield at_least("8 B puts by a kernel / by the host", HOST_RATIO, ours, host, VALUE_NBYTES)


def _beside_nvshmem(figures: Figures) -> Iterator[Verdict]:
    for test, name in (("put_notify", "put_notify"), ("word", f"{WORD_NBYTES} B word")):
        ours, theirs = (figures.by_size(test, "one_way", impl) for impl in ("zerohop", "nvshmem"))
        yield _no_slower(f"{name}, one way / nvshmem", ours, theirs)
    for test in ("puts", "values"):
        for shape in SHAPES:
            ours, theirs = (
                figures.by_size(f"{test}_{shape}", "rate", impl) for impl in ("zerohop", "nvshmem")
            )
            target = f"8 B {test}, {shape.replace('x', ' x ')} threads / nvshmem"
            yield at_least(target, 1.0, ours, theirs, VALUE_NBYTES)


def _no_slower(target: str, ours: Mapping[int, float], theirs: Mapping[int, float]) -> Verdict:
    """Of seconds: the ratio at the size where it is greatest."""
    target = f"{target} <= 1"
    ratios = {nbytes: ours[nbytes] / theirs[nbytes] for nbytes in ours if nbytes in theirs}
    if not ratios:
        return unmeasured(target)
    worst = max(ratios, key=lambda nbytes: ratios[nbytes])
    measured = f"{ratios[worst]:.3f} at {human_bytes(worst)}, best {min(ratios.values()):.3f}"
    return Verdict(target, measured, ratios[worst] <= 1)


def _entries(figures: Figures) -> Iterator[Verdict]:
    for way in RING_WAYS:
        one, many = (
            figures.get(f"entries_{way}_{threads}", "posted", VALUE_NBYTES, driver=DRIVER)
            for threads in (1, LANES)
        )
        yield at_most(f"{way}: a thread posts an entry", POST_S, one)
        target = f"{way}: rate of posting by {LANES} threads / by one >= {LANES_RATIO:g}"
        if one is None or many is None:
            yield unmeasured(target)
        else:
            measured = f"{one / many:.2f} ({human_seconds(one)} to {human_seconds(many)})"
            yield Verdict(target, measured, one >= LANES_RATIO * many)
