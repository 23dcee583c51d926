"""How `zerohop bench gda` judges what it found, and where a queue pair's rings can lie."""

import pytest
from zerohop.bench.gda.rings import cells
from zerohop.bench.gda.targets import verdicts
from zerohop.bench.plan import KIB, MIB
from zerohop.bench.rows import Figures, Row


def row(
    test: str, nbytes: int, metric: str, value: float, impl: str = "zerohop", driver: str = "kernel"
) -> Row:
    return Row("gda", test, "", "", "", driver, nbytes, impl, metric, value, "s")


def judged(*rows: Row) -> dict[str, tuple[bool | None, str]]:
    """Those of which there are figures."""
    return {
        verdict.target: (verdict.met, verdict.measured)
        for verdict in verdicts(Figures(rows))
        if verdict.met is not None
    }


def test_every_target_has_its_line_measured_or_not() -> None:
    found = verdicts(Figures([]))
    assert [verdict.target for verdict in found] == [
        "8 B put_notify by a thread, one way <= 1.6 us",
        "64 KiB put_notify by a block, one way <= 3.5 us",
        "64 MiB put by a kernel / a bare copy >= 0.95",
        "8 B puts by a kernel / by the host >= 10",
        "put_notify, one way / nvshmem <= 1",
        "4 B word, one way / nvshmem <= 1",
        "8 B puts, 1 x 1 threads / nvshmem >= 1",
        "8 B puts, 1 x 512 threads / nvshmem >= 1",
        "8 B puts, 132 x 512 threads / nvshmem >= 1",
        "8 B values, 1 x 1 threads / nvshmem >= 1",
        "8 B values, 1 x 512 threads / nvshmem >= 1",
        "8 B values, 132 x 512 threads / nvshmem >= 1",
        "proxy: a thread posts an entry <= 1 us",
        "proxy: rate of posting by 32 threads / by one >= 8",
        "direct: a thread posts an entry <= 1 us",
        "direct: rate of posting by 32 threads / by one >= 8",
    ]
    assert {(verdict.met, verdict.measured) for verdict in found} == {(None, "")}


def test_one_ways_are_judged_by_size_and_beside_nvshmem_where_it_is_best() -> None:
    ours, theirs = {8: 1.5e-6, 4 * KIB: 2.0e-6, 64 * KIB: 3.6e-6}, {8: 1.6e-6, 4 * KIB: 1.9e-6}
    rows = [row("put_notify", n, "one_way", value) for n, value in ours.items()]
    rows += [row("put_notify", n, "one_way", value, "nvshmem") for n, value in theirs.items()]
    assert judged(*rows) == {
        "8 B put_notify by a thread, one way <= 1.6 us": (True, "1.5 us"),
        "64 KiB put_notify by a block, one way <= 3.5 us": (False, "3.6 us"),
        "put_notify, one way / nvshmem <= 1": (False, "1.053 at 4 KiB, best 0.938"),
    }


@pytest.mark.parametrize(("ours", "met"), [(95.0, True), (94.0, False)])
def test_bandwidth_is_judged_by_the_bare_copy_of_the_same_run(ours: float, met: bool) -> None:
    rows = [row("put_wide", 64 * MIB, "bandwidth", ours)]
    rows.append(row("put_wide", 64 * MIB, "bandwidth", 100.0, "bare"))
    assert [found[0] for found in judged(*rows).values()] == [met]


def test_rates_are_judged_by_the_better_of_the_hosts_loops_and_by_nvshmem() -> None:
    rows = [
        row("puts_132x512", 8, "rate", 90.0),
        row("puts_132x512", 8, "rate", 89.0, "nvshmem"),
        row("host_puts_python", 8, "rate", 1.0, driver="python"),
        row("host_puts_cpp", 8, "rate", 9.5, driver="cpp"),
    ]
    assert [met for met, _ in judged(*rows).values()] == [False, True]
    assert [met for met, _ in judged(*rows[:3]).values()] == [True, True]


def test_entries_are_judged_by_what_a_thread_pays_and_by_how_lanes_share() -> None:
    posted = {"proxy_1": 0.9e-6, "proxy_32": 0.1e-6, "direct_1": 1.1e-6, "direct_32": 0.2e-6}
    rows = [row(f"entries_{name}", 8, "posted", value) for name, value in posted.items()]
    found = judged(*rows)
    assert [met for met, _ in found.values()] == [True, True, False, False]
    ratio = "direct: rate of posting by 32 threads / by one >= 8"
    assert found[ratio] == (False, "5.50 (1.1 us to 200 ns)")


def test_of_the_places_of_rings_there_is_a_figure_or_a_reason() -> None:
    found = cells(Figures([row("put_notify_direct", 8, "one_way", 21e-6)]), "soft0")
    assert found["CPU", "CPU"] == "21 us one way of 8 B by soft0"
    assert len(found) == 4
    others = [said for places, said in found.items() if "GPU" in places]
    assert all(said.startswith("not to be had") for said in others)
    assert cells(Figures([]), "soft0")["CPU", "CPU"].startswith("not measured")
