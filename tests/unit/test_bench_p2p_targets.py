"""What `zerohop bench p2p` means to measure between GPUs, and how it judges what it found."""

from zerohop.bench.p2p import plan
from zerohop.bench.p2p.targets import gpu_verdicts, host_verdicts
from zerohop.bench.plan import GIB, KIB, MIB, Options
from zerohop.bench.rows import Figures, Row


def row(test: str, nbytes: int, metric: str, value: float, impl: str = "zerohop", **others) -> Row:
    fixed = {"suite": "p2p", "route": "p2p", "device": "", "memory": "", "driver": "python"}
    fields = {**fixed, "unit": "s", **others}
    return Row(test=test, nbytes=nbytes, metric=metric, value=value, impl=impl, **fields)


def rate(test: str, nbytes: int, value: float, impl: str = "zerohop", **others) -> Row:
    return row(test, nbytes, "bandwidth", value, impl, **others)


def judged(*rows: Row) -> dict[str, tuple[bool, str]]:
    """Those of which there are figures."""
    found = gpu_verdicts(Figures(rows))
    return {v.target: (v.met, v.measured) for v in found if v.met is not None}


def test_arenas_of_all_contestants_fit_into_the_fuller_gpu() -> None:
    options = Options(peers=("raw", "torch", "nccl"))
    assert plan.gpu_plan(options, 140 * GIB, 2).left_out == ()
    for gpus in (1, 2):
        made = plan.gpu_plan(options, 8 * GIB, gpus)
        arenas = 4 if gpus == 2 else 8
        assert arenas * 2 * max(made.sizes) <= 8 * GIB
        assert GIB in made.left_out


def test_1_gib_is_mapped_in_short_runs_too_unless_memory_is_short() -> None:
    quick = plan.gpu_plan(Options(quick=True), 140 * GIB, 2)
    assert (quick.sizes, quick.mapping_nbytes) == (plan.QUICK_SIZES, GIB)
    short = plan.gpu_plan(Options(), 2 * GIB, 1)
    arenas = 2 * 2 * max(short.sizes)
    assert arenas + 2 * short.mapping_nbytes <= 2 * GIB


def test_an_arena_holds_what_every_test_moves() -> None:
    small = plan.gpu_plan(Options(sizes=(8,)), 140 * GIB, 2)
    half = plan.arena_nbytes(small) // 2
    assert half >= max(plan.BLOCKS_NBYTES, 8192 * plan.HALO_PITCH)
    assert [plan.BLOCKS_NBYTES // block for block in plan.BLOCK_TESTS.values()] == [
        16384,
        4096,
        1024,
    ]


def test_writes_are_judged_from_256_mib_against_each_peer() -> None:
    rows = [rate("write", MIB, 1.0), rate("write", MIB, 9.0, "raw")]
    for nbytes, ours in ((256 * MIB, 98.0), (GIB, 100.0)):
        rows += [rate("write", nbytes, ours), rate("write", nbytes, 100.0, "raw")]
    rows.append(rate("write", GIB, 90.0, "nccl"))
    assert judged(*rows) == {
        "write from 256 MiB / raw >= 0.99": (False, "0.980 at 256 MiB, best 1.000"),
        "write from 256 MiB / nccl >= 1.05": (True, "1.111 at 1 GiB, best 1.111"),
    }


def test_notifications_are_judged_by_size() -> None:
    times = {8: 4.4e-6, 4 * KIB: 4.6e-6, 64 * KIB: 5.9e-6, MIB: 9.1e-6, 16 * MIB: 60e-6}
    rows = [row("stream_notify", nbytes, "one_way", value) for nbytes, value in times.items()]
    assert list(judged(*rows).values()) == [(False, "4.6 us"), (True, "5.9 us"), (False, "9.1 us")]


def test_every_target_between_gpus_has_its_line_measured_or_not() -> None:
    found = gpu_verdicts(Figures([]))
    assert [verdict.target for verdict in found] == [
        "write from 256 MiB / raw >= 0.99",
        "write from 256 MiB / nccl >= 1.05",
        "8 B to 4 KiB write+notify, stream to stream, one way <= 4.5 us",
        "64 KiB write+notify, stream to stream, one way <= 6 us",
        "1 MiB write+notify, stream to stream, one way <= 9 us",
        "posting a write <= 4 us",
        "posting a write+notify behind a stream <= 4 us",
        "write_many_4k, 64 MiB in all >= 280 GB/s",
        "write_many_16k, 64 MiB in all >= 320 GB/s",
        "write_many_64k, 64 MiB in all >= 340 GB/s",
        "halo columns / a loop of row copies >= 10",
        "reading from 256 MiB / writing >= 0.95",
        "both directions from 256 MiB / one >= 1.9",
        "first mapping of 1 GiB <= 2 ms",
        "cached mapping of 1 GiB <= 2 us",
    ]
    assert {(verdict.met, verdict.measured) for verdict in found} == {(None, "")}


def test_every_target_of_host_memory_has_its_line_measured_or_not() -> None:
    assert {verdict.met for verdict in host_verdicts(Figures([]), mapped=True)} == {None}
    assert [verdict.target for verdict in host_verdicts(Figures([]), mapped=True)] == [
        "write bandwidth from 64 KiB / ucx >= 0.95",
        "read bandwidth from 64 KiB / ucx >= 0.95",
        "8 B write from C++ / ucx put <= 3",
        "8 B write+notify half round trip from C++ <= 500 ns",
        "8 B write+notify half round trip from Python <= 3 us",
    ]


def test_calls_lists_and_directions_are_judged() -> None:
    rows = [
        row("post_write", 8, "per_call", 4.1e-6),
        row("stream_notify", 8, "per_call", 3.9e-6),
        row("mapping", GIB, "first", 1.9e-3),
        row("mapping", GIB, "cached", 2.1e-6),
        rate("write_many_4k", 64 * MIB, 281e9),
        rate("write_many_16k", 64 * MIB, 319e9),
        rate("write_many_64k", 64 * MIB, 341e9),
        rate("halo", 512 * KIB, 9.0),
        rate("halo", 512 * KIB, 1.0, "raw"),
        rate("write", GIB, 100.0),
        rate("read", GIB, 96.0),
        rate("both", GIB, 189.0),
    ]
    assert [met for met, _ in judged(*rows).values()] == [
        *(False, True),
        *(True, False, True, False),
        *(True, False),
        *(True, False),
    ]


def test_a_difference_in_the_noise_is_shown_with_it_and_judged_by_both() -> None:
    def cached(value: float, error: float) -> tuple[bool, str]:
        rows = [row("mapping", GIB, "cached", value), row("mapping", GIB, "cached_error", error)]
        return judged(*rows)["cached mapping of 1 GiB <= 2 us"]

    assert cached(-30e-9, 50e-9) == (True, "-30 ns, +- 50 ns")
    assert cached(1.9e-6, 0.2e-6) == (False, "1.9 us, +- 200 ns")


def test_a_mapping_of_less_than_1_gib_is_not_judged() -> None:
    assert judged(row("mapping", MIB, "first", 1.0)) == {}


def test_host_targets_are_judged_from_cpp_and_notifications_only_of_mapped_memory() -> None:
    rows = [
        row("write_latency", 8, "p50", 0.3e-6, driver="cpp"),
        row("write_latency", 8, "p50", 0.11e-6, "ucx", driver="cpp"),
        row("latency", 8, "p50", 0.6e-6, driver="cpp"),
        row("latency", 8, "p50", 2.9e-6),
        rate("write", 64 * KIB, 94.0, driver="cpp"),
        rate("write", 64 * KIB, 999.0),
        rate("write", 64 * KIB, 100.0, "ucx", driver="cpp"),
    ]
    found = host_verdicts(Figures(rows), mapped=True)
    assert [verdict.met for verdict in found] == [False, None, True, False, True]
    assert len(host_verdicts(Figures(rows), mapped=False)) == 3
