"""How the benchmarks judge what they found: every target has its line, measured or not."""

from collections.abc import Sequence

from zerohop.bench import soft, wait
from zerohop.bench.placement import TOGETHER
from zerohop.bench.plan import GIB, KIB, MIB
from zerohop.bench.rows import OURS, Row
from zerohop.bench.targets import Target, verdicts

Judged = dict[str, tuple[bool | None, str]]


def row(test: str, nbytes: int, metric: str, value: float, impl: str = OURS, **others) -> Row:
    fields = {"route": "", "device": "", "memory": "", "driver": "cpp", "unit": "s", **others}
    return Row("x", test, nbytes=nbytes, metric=metric, value=value, impl=impl, **fields)


def rate(test: str, nbytes: int, value: float, impl: str = OURS, **others) -> Row:
    return row(test, nbytes, "bandwidth", value, impl, **others)


def judged(targets: Sequence[Target], *rows: Row) -> Judged:
    """Those of which there are figures."""
    found = verdicts(targets, rows)
    return {v.target: (v.met, v.measured) for v in found if v.met is not None}


def met(targets: Sequence[Target], *rows: Row) -> list[bool | None]:
    return [is_met for is_met, _ in judged(targets, *rows).values()]


def test_ratios_are_judged_at_the_worst_size_from_their_threshold():
    rows = []
    for nbytes, ours, theirs in [(4 * KIB, 1, 9), (64 * KIB, 3, 2), (MIB, 9, 10), (GIB, 4, 2)]:
        rows += [rate("write", nbytes, ours)]
        rows += [rate("write", nbytes, theirs, impl) for impl in ("ucx", "iperf3")]
    rows += [rate("write", MIB, 0.0, driver="python")]
    assert judged(soft.TARGETS, *rows) == {
        "write bandwidth from 64 KiB by C++ / ucx >= 1": (False, "0.9 at 1 MiB, best 2"),
        "write bandwidth from 1 MiB by C++ / iperf3 >= 0.9": (True, "0.9 at 1 MiB, best 2"),
    }
    latencies = [row("latency", 8, "p50", 10e-6)]
    latencies += [row("latency", 8, "p50", 7e-6, impl) for impl in ("ucx", "tcp")]
    assert met(soft.TARGETS, *latencies) == [True, False]
    idle = row("idle_peers_100", 0, "rss_per_peer", 65 * KIB)
    assert list(judged(soft.TARGETS, idle).values()) == [(False, "65 KiB")]


def taken(test: str, impl: str, value: float, **others) -> Row:
    fields = {"nbytes": 8, "metric": "p50", "driver": "python", **others}
    return row(test, value=value, impl=impl, **fields)


def test_waits_are_judged_on_one_core_and_by_the_worst_job():
    one = {"placement": TOGETHER}
    rows = [
        taken(wait.LATENCY, OURS, 7e-6, route="p2p", **one),
        taken(wait.LATENCY, OURS, 16e-6, route="host", **one),
        taken(wait.LATENCY, OURS, 1.0, route="p2p"),
        taken(wait.LATENCY, "pipe", 4e-6, **one),
        taken(wait.LATENCY, "tcp yielding", 12e-6, **one),
        *(taken(f"barrier_{n}", OURS, us * 1e-6, nbytes=0) for n, us in ((2, 1), (4, 9))),
        *(taken(f"barrier_{n}", "mpi", 3e-6, nbytes=0) for n in (2, 4)),
        *(taken(f"barrier_{n}", "gloo", 10e-6, nbytes=0) for n in (2, 4)),
    ]
    assert [(v.target, v.measured, v.met) for v in wait.report(rows).judged] == [
        ("zerohop p2p: latency on one core median / pipe <= 1.5", "1.75 at 8 B", False),
        ("zerohop soft0: latency on one core median / tcp yielding <= 1.5", "1.333 at 8 B", True),
        ("barrier / mpi, free <= 1.5", "3.00 with 4 ranks", False),
        ("barrier / gloo, free <= 1", "0.90 with 4 ranks", True),
    ]
