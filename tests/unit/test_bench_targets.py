"""How the benchmarks judge what they found: every target has its line, measured or not."""

from collections.abc import Sequence

from zerohop.bench import soft, wait
from zerohop.bench.gda import suite as gda
from zerohop.bench.p2p import suite as p2p
from zerohop.bench.placement import TOGETHER
from zerohop.bench.plan import GIB, KIB, MIB
from zerohop.bench.rows import OURS, Row
from zerohop.bench.targets import Target, verdicts

Judged = dict[str, tuple[bool | None, str]]
ONE_WAY = "stream_notify one way of 8 B to 4 KiB <= 4.5 us"


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


def test_ratios_are_judged_at_the_worst_size_from_their_threshold() -> None:
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


def test_figures_between_gpus_are_judged() -> None:
    rows = [rate("write", n, v) for n, v in ((MIB, 1.0), (256 * MIB, 98.0), (GIB, 100.0))]
    rows += [rate("write", n, v, "raw") for n, v in ((MIB, 9.0), (256 * MIB, 100.0), (GIB, 100.0))]
    rows += [rate("write", GIB, 90.0, "nccl")]
    times = {8: 4.4e-6, 4 * KIB: 4.6e-6, 64 * KIB: 5.9e-6, MIB: 9.1e-6, 16 * MIB: 60e-6}
    rows += [row("stream_notify", nbytes, "one_way", value) for nbytes, value in times.items()]
    rows += [row("post_write", 8, "per_call", 4.1e-6)]
    rows += [row("stream_notify", 8, "per_call", 3.9e-6)]
    sizes = {"write_many_4k": 281e9, "write_many_16k": 319e9, "write_many_64k": 341e9}
    rows += [rate(test, 64 * MIB, value) for test, value in sizes.items()]
    rows += [rate("halo", 512 * KIB, 9.0), rate("halo", 512 * KIB, 1.0, "raw")]
    rows += [rate("read", GIB, 96.0), rate("both", GIB, 189.0)]
    found = judged(p2p.TARGETS, *rows)
    assert [is_met for is_met, _ in found.values()] == [
        *(False, True),
        *(False, True, False),
        *(False, True),
        *(True, False, True, False),
        *(True, False),
    ]
    assert found["write bandwidth from 256 MiB / raw >= 0.99"] == (False, "0.98 at 256 MiB, best 1")
    assert found[ONE_WAY] == (False, "4.6 us at 4 KiB, best 4.4 us")


def test_kernels_are_judged() -> None:
    ours, theirs = {8: 1.5e-6, 4 * KIB: 2.0e-6, 64 * KIB: 3.6e-6}, {8: 1.6e-6, 4 * KIB: 1.9e-6}
    rows = [row("put_notify", n, "one_way", value) for n, value in ours.items()]
    rows += [row("put_notify", n, "one_way", value, "nvshmem") for n, value in theirs.items()]
    rows += [rate("put_wide", 64 * MIB, 94.0), rate("put_wide", 64 * MIB, 100.0, "bare")]
    rows += [row("puts_132x512", 8, "rate", 90.0), row("puts_132x512", 8, "rate", 89.0, "nvshmem")]
    rows += [row("host_puts_cpp", 8, "rate", 9.5), row("host_puts_python", 8, "rate", 1.0)]
    posted = {"proxy_1": 0.9e-6, "proxy_32": 0.1e-6, "direct_1": 1.1e-6, "direct_32": 0.2e-6}
    rows += [row(f"entries_{name}", 8, "posted", value) for name, value in posted.items()]
    assert judged(gda.TARGETS, *rows) == {
        "put_notify one way of 8 B <= 1.6 us": (True, "1.5 us at 8 B"),
        "put_notify one way of 64 KiB <= 3.5 us": (False, "3.6 us at 64 KiB"),
        "put_wide bandwidth / bare >= 0.95": (False, "0.94 at 64 MiB"),
        "puts_132x512 rate / host_puts_cpp >= 10": (False, "9.474 at 8 B"),
        "put_notify one way / nvshmem <= 1": (False, "1.053 at 4 KiB, best 0.9375"),
        "puts_132x512 rate / nvshmem >= 1": (True, "1.011 at 8 B"),
        "entries_proxy_1 to post <= 1 us": (True, "900 ns at 8 B"),
        "entries_proxy_32 to post / entries_proxy_1 <= 0.125": (True, "0.1111 at 8 B"),
        "entries_direct_1 to post <= 1 us": (False, "1.1 us at 8 B"),
        "entries_direct_32 to post / entries_direct_1 <= 0.125": (False, "0.1818 at 8 B"),
    }


def test_nothing_is_judged_where_one_gpu_had_both_ends() -> None:
    one = row("put_notify", 8, "one_way", 1e-6, memory="cuda:0 -> cuda:0")
    first, *others = verdicts(gda.TARGETS, [one])
    assert (first.met, first.measured, first.unjudged) == (
        None,
        "1 us at 8 B",
        "not judged: one GPU",
    )
    assert {verdict.unjudged for verdict in others} == {""}


def test_of_the_places_of_rings_there_is_a_figure_or_a_reason() -> None:
    figure = row("put_notify_direct", 8, "one_way", 21e-6, driver="kernel")
    found = gda.rings([figure], {"device": "soft0"})
    assert found["CPU / CPU"] == "21 us one way of 8 B by soft0"
    others = [said for places, said in found.items() if "GPU" in places]
    assert len(others) == 3
    assert all(said.startswith("not available") for said in others)
    assert gda.rings([], {})["CPU / CPU"].startswith("not measured")


def taken(test: str, impl: str, value: float, **others) -> Row:
    fields = {"nbytes": 8, "metric": "p50", "driver": "python", **others}
    return row(test, value=value, impl=impl, **fields)


def test_waits_are_judged_on_one_core_and_by_the_worst_job() -> None:
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
