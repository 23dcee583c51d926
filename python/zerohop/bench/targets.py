"""What the figures should be. Each constant is a line of "Speed" in the issue that asked for this suite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from zerohop.bench.plan import KIB, MIB
from zerohop.bench.rows import Figures, Row
from zerohop.host import human_bytes, human_seconds

UCX_BANDWIDTH_FROM, UCX_BANDWIDTH_RATIO = 64 * KIB, 1.0  # "at least that of ucx_perftest over tcp"
IPERF3_FROM, IPERF3_RATIO = MIB, 0.9  # "at least 0.9 of a single-stream iperf3"
LATENCY_NBYTES = 8
UCX_LATENCY_RATIO = 1.5  # "no more than 1.5 of UCX tcp's put latency"
TCP_LATENCY_RATIO = 1.25  # "no more than 1.25 of a bare C TCP ping-pong"
ONE_GPU = "not judged: one GPU"
PEER_NBYTES = 64 * KIB  # "at most 64 KiB per idle Peer plus queue memory"


@dataclass(frozen=True)
class Verdict:
    target: str
    measured: str
    met: bool | None  # None: it was not measured, or is not judged
    unjudged: str = ""  # why what was measured is not judged


def unmeasured(target: str) -> Verdict:
    return Verdict(target, "", None)


def judged_between_gpus(verdicts: list[Verdict], rows: Iterable[Row]) -> list[Verdict]:
    """None is judged where one GPU had both ends: it gives processes turns of milliseconds, and copies within itself."""
    if not any(len(ends := row.memory.split(" -> ")) == 2 and ends[0] == ends[1] for row in rows):
        return verdicts
    return [
        replace(verdict, met=None, unjudged=ONE_GPU) if verdict.met is not None else verdict
        for verdict in verdicts
    ]


def at_most(target: str, bound: float, seconds: float | None, error: float = 0.0) -> Verdict:
    """error: of `seconds`, which the bound has to cover, too."""
    target = f"{target} <= {human_seconds(bound)}"
    if seconds is None:
        return unmeasured(target)
    measured = human_seconds(seconds) + (f", +- {human_seconds(error)}" if error else "")
    return Verdict(target, measured, seconds + error <= bound)


def at_least(
    target: str, bound: float, ours: Mapping[int, float], theirs: Mapping[int, float], smallest: int
) -> Verdict:
    """The ratio at the size, from `smallest` up, where it is least."""
    target = f"{target} >= {bound:g}"
    ratios = {
        nbytes: value / theirs[nbytes]
        for nbytes, value in ours.items()
        if nbytes >= smallest and nbytes in theirs
    }
    if not ratios:
        return unmeasured(target)
    worst = min(ratios, key=lambda nbytes: ratios[nbytes])
    measured = f"{ratios[worst]:.3f} at {human_bytes(worst)}, best {max(ratios.values()):.3f}"
    return Verdict(target, measured, ratios[worst] >= bound)


def verdicts(figures: Figures) -> list[Verdict]:
    """One for each target of which everything needed was measured."""
    return [
        *_bandwidths(figures),
        *_latencies(figures),
        *_peers(figures),
    ]


def _bandwidths(figures: Figures) -> Iterator[Verdict]:
    against = (
        ("ucx", ("write", "read", "send"), UCX_BANDWIDTH_FROM, UCX_BANDWIDTH_RATIO),
        ("iperf3", ("write",), IPERF3_FROM, IPERF3_RATIO),
    )
    for impl, tests, smallest, bound in against:
        for test in tests:
            ratios = {}
            for nbytes in figures.sizes(test):
                ours = figures.get(test, "bandwidth", nbytes)
                theirs = figures.get(test, "bandwidth", nbytes, impl)
                if nbytes >= smallest and ours and theirs:
                    ratios[nbytes] = ours / theirs
            if ratios:
                worst = min(ratios, key=lambda nbytes: ratios[nbytes])
                yield Verdict(
                    f"{test} bandwidth from {human_bytes(smallest)} / {impl} >= {bound:g}",
                    f"{ratios[worst]:.2f} at {human_bytes(worst)}, best {max(ratios.values()):.2f}",
                    ratios[worst] >= bound,
                )


def _latencies(figures: Figures) -> Iterator[Verdict]:
    ours = figures.get("latency", "p50", LATENCY_NBYTES)
    for impl, bound in (("ucx", UCX_LATENCY_RATIO), ("tcp", TCP_LATENCY_RATIO)):
        theirs = figures.get("latency", "p50", LATENCY_NBYTES, impl)
        if ours and theirs:
            yield Verdict(
                f"{LATENCY_NBYTES} B write+notify half round trip / {impl} <= {bound:g}",
                f"{ours / theirs:.2f} ({human_seconds(ours)} to {human_seconds(theirs)})",
                ours <= bound * theirs,
            )


def _peers(figures: Figures) -> Iterator[Verdict]:
    for test in figures.tests():
        if test.startswith("idle_peers_"):
            value = figures.get(test, "rss_per_peer", 0)
            if value is not None:
                yield Verdict(
                    f"{test}: memory per Peer <= {human_bytes(PEER_NBYTES)} plus its queues",
                    human_bytes(value),
                    value <= PEER_NBYTES,
                )
