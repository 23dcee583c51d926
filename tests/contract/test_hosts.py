"""Reductions among ranks of several hosts: what NumPy makes of the arrays in the documented order, bit for bit, on every rank.

test_stages.cpp has every algorithm in more layouts, without a network.
"""

import json
import signal
from dataclasses import replace

import numpy as np
import pytest
import zerohop as zh
from click.testing import CliRunner
from support.attempt import LOST_WITHIN, Attempt, within
from support.elsewhere import put_elsewhere
from support.hosts import LAYOUTS, put_on_hosts, reduced_by_hosts, size_of
from support.ranks import close, results, worlds
from support.reduced import FACTOR, given, reduced, same
from zerohop._world.addresses import Addresses
from zerohop._world.deadline import Deadline
from zerohop._world.entries import Entry
from zerohop._world.store import Directory
from zerohop.bench import tune
from zerohop.bench.command import bench
from zerohop.collectives.lines import EAGER
from zerohop.collectives.table import DEFAULT, VARIABLE, Row, check_alike, read_table, write_table

ALGORITHMS = [
    f"{place}{pairs}{whole}"
    for place in ("flat", "hosts")
    for pairs in ("", " pairs")
    for whole in ("", " whole")
]
SLICES = (EAGER, 2 * EAGER)  # along with their headers, and written
SPREAD = 2.0  # seconds beside those in which a loss is seen: from rank to rank
SIZES = (0, 4, 1020, EAGER, 3 * EAGER + 4)
TYPES = (
    ("sum", "float32"),
    ("avg", "float16"),
    ("premul_sum", "complex64"),
    ("max", "bfloat16"),
    ("prod", "int16"),
    ("land", "float64"),
)


def every_call(world, layout, algorithm, op, dtype, count, number):
    rank, size, hosts = world.rank, world.size, LAYOUTS[layout]
    more = {"factor": FACTOR} if op == "premul_sum" else {}
    arrays = [given(each, count, dtype, number) for each in range(size)]
    what = f"{op} of {count} {dtype}, {layout}, {algorithm}"
    expected = reduced_by_hosts(op, arrays, hosts, algorithm)
    here = arrays[rank].copy()
    world.all_reduce(here, op, **more)
    same(here, expected, f"all_reduce, {what}")
    out, here = np.zeros_like(here), arrays[rank].copy()
    world.all_reduce(here, op, out=out, wait=False, **more).wait()
    same(out, expected, f"all_reduce to out, {what}")
    root = number % size
    world.reduce(here, root, op, out=out, **more)
    same(here, arrays[rank], f"inputs, {what}")
    if rank == root:
        expected = reduced_by_hosts(op, arrays, hosts, algorithm.replace("pairs", ""))
        same(out, expected, f"reduce, {what}")
    if op != "avg":
        world.scan(here, op, **more)
        same(here, reduced(op, arrays[: rank + 1]), f"scan, {what}")


def by_every_algorithm(world, layout, types, sizes, algorithms=ALGORITHMS):
    world.all_reduce(0)
    number = 0
    for algorithm in algorithms:
        for each in SLICES:
            world.barrier()
            world._desk.lines.go_by([Row(None, None, None, algorithm, each)])
            for nbytes in sizes:
                op, dtype = types[number % len(types)]
                number += 1
                count = nbytes // given(0, 1, dtype).itemsize
                every_call(world, layout, algorithm, op, dtype, count, number)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.timeout(120)
def test_every_algorithm(rank_threads, monkeypatch, layout):
    put_on_hosts(monkeypatch, layout)
    rank_threads(by_every_algorithm, size_of(layout), layout, TYPES, SIZES, deadline=100.0)


@pytest.mark.parametrize("layout", ["2x2", "3+2+1"])
@pytest.mark.timeout(120)
def test_arrays_of_several_pieces(rank_threads, monkeypatch, layout):
    put_on_hosts(monkeypatch, layout)
    given = layout, TYPES[:1], [(4 << 20) + 8], ["hosts", "hosts pairs"]
    rank_threads(by_every_algorithm, size_of(layout), *given, deadline=100.0)


@pytest.mark.parametrize("elsewhere", [0, 2])
def test_arrays_that_a_cpu_does_not_reach(rank_threads, monkeypatch, elsewhere):
    put_on_hosts(monkeypatch, "2+1")
    put_elsewhere(monkeypatch, elsewhere)
    sizes = (0, 1020, EAGER + 4, 40 * EAGER + 12)
    rank_threads(by_every_algorithm, 3, "2+1", TYPES[:1], sizes, deadline=50.0)


@pytest.mark.parametrize("nbytes", [8, EAGER, 1 << 20, 8 << 20])
def test_runs_have_the_same_bits(rank_threads, monkeypatch, nbytes):
    """Ranks that come in another order change nothing."""
    put_on_hosts(monkeypatch, "2x2")
    made = worlds(rank_threads, range(4), 4)
    came = []
    for order in (range(4), reversed(range(4))):
        arrays = [given(rank, nbytes // 4, "float32") for rank in range(4)]
        results([Attempt(made[rank].all_reduce, arrays[rank]) for rank in order])
        came += arrays
    for each in came:
        assert each.tobytes() == came[0].tobytes()
    close(made)


def test_calls_that_differ_are_named(rank_threads, monkeypatch):
    put_on_hosts(monkeypatch, "2x2")
    made = worlds(rank_threads, range(4), 4)
    results([Attempt(world.all_reduce, 1) for world in made])
    ops = ("sum", "sum", "sum", "max")
    attempts = [
        Attempt(world.all_reduce, np.ones(1 << 19), op) for world, op in zip(made, ops, strict=True)
    ]
    errors = [str(attempt.failure(ValueError, 8)) for attempt in attempts]
    for error in errors:
        assert "all_reduce (call 2, sum)" in error
        assert "all_reduce (call 2, max)" in error
    close(made)


@pytest.mark.parametrize("nbytes", [8, 2 * EAGER, 8 << 20])
@pytest.mark.parametrize("call", ["all_reduce", "reduce"])
def test_a_rank_that_dies_ends_it_on_all_hosts(rank_threads, monkeypatch, victim, call, nbytes):
    """Rank 0 has no moves to or from it."""
    put_on_hosts(monkeypatch, "2x2")
    dying = victim(4)
    made = worlds(rank_threads, range(3), 4)
    results([Attempt(world.barrier) for world in made])
    pending = [Attempt(getattr(world, call), np.zeros(nbytes // 4, "f4")) for world in made]
    pending[0].stays_pending(0.1)
    killed = dying.signal(signal.SIGKILL)
    for rank, attempt in enumerate(pending):
        if call == "reduce" and rank > 0:
            continue  # it may have sent its part, and returned
        attempt.failure(zh.PeerLost, LOST_WITHIN + SPREAD + 1)
        assert attempt.ended_at - killed < LOST_WITHIN + SPREAD
    for world in made:
        with pytest.raises(zh.PeerLost, match="rank 3"), within(LOST_WITHIN + SPREAD):
            world.all_reduce(1)
    close(made)


def test_what_an_earlier_run_has_left_is_not_believed(rank_threads, monkeypatch):
    """Its rank was on another host, whose locks are not seen here, and had another table."""
    put_on_hosts(monkeypatch, None)
    made = worlds(rank_threads, [0, 1], 2)
    close(made)
    directory, key = Directory(rank_threads.directory), f"zerohop/{made[0].name}/1"
    old = Entry.from_bytes(directory.get(key))
    old = replace(old, boot="elsewhere", place="elsewhere", table=json.dumps(DEFAULT[3:]))
    directory.set(key, old.to_bytes())
    made = worlds(rank_threads, [0], 2)
    attempts = [Attempt(made[0].all_reduce, 1)]
    attempts[0].stays_pending(0.3)
    made += worlds(rank_threads, [1], 2)
    attempts.append(Attempt(made[1].all_reduce, 1))
    assert results(attempts) == [2, 2]
    assert [world._desk.lines.hosts for world in made] == [[0, 0]] * 2
    close(made)


def test_the_store_is_not_needed_by_ranks_that_have_met(rank_threads, monkeypatch):
    """A World of some ranks calls after the rank whose process had the store has ended."""
    made = worlds(rank_threads, range(3), 3)
    results([Attempt(world.barrier) for world in made])
    made[1].peer(2)
    made[2].peer(1)
    some = results([Attempt(world.split, [1, 2]) for world in made[1:]])
    monkeypatch.setattr(Addresses, "wait", lambda *_: pytest.fail("the store has ended"))
    assert results([Attempt(world.all_reduce, 1) for world in some]) == [2, 2]
    close(made)


def test_a_timeout_while_no_rank_is_missing_names_none(rank_threads):
    """Its own transfers are what is not complete."""
    [world] = worlds(rank_threads, [0], 2)
    with pytest.raises(zh.TransferTimeout, match=r"^it takes longer than its timeout$"):
        world._desk.lines.hear((), True, Deadline(0))
    close([world])


# --- tables ---


def test_a_table_from_a_file_is_that_of_the_world(rank_threads, monkeypatch, tmp_path):
    rows = [Row(1, 4, 100, "flat whole"), Row(None, None, None, "hosts pairs", 4 * EAGER)]
    write_table(tmp_path / "table.json", rows)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "table.json"))
    put_on_hosts(monkeypatch, "2x2")

    def call(world):
        assert [Row(*row) for row in json.loads(world._membership.table)] == rows
        every_call(world, "2x2", "hosts pairs", "sum", "float32", 100_000, 0)

    rank_threads(call, 4)


def test_ranks_with_different_tables_are_told_the_difference(rank_threads, monkeypatch, tmp_path):
    write_table(tmp_path / "table.json", [*DEFAULT[:1], Row(None, None, None, "flat")])
    made = worlds(rank_threads, [0], 2)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "table.json"))
    made += worlds(rank_threads, [1], 2)
    attempts = [Attempt(world.all_reduce, 1) for world in made]
    for rank, attempt in enumerate(attempts):
        error = str(attempt.failure(ValueError, 8))
        assert "different tables of algorithms: row 2 is {" in error
        assert f"on rank {rank}, {{" in error
        assert VARIABLE in error
    close(made)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_table_that_ends_earlier_differs_there(rank):
    tables = [json.dumps(DEFAULT), json.dumps(DEFAULT[:-1])]
    with pytest.raises(ValueError, match=f"row {len(DEFAULT)} is .*missing on rank 1"):
        check_alike(tables[rank], tables[1 - rank], rank, 1 - rank)


def test_a_table_of_another_version_is_named():
    for table in ('[["flat"]]', "[5]", "{"):
        with pytest.raises(ValueError, match=r"rank 1 has a table .* of another version"):
            check_alike("", table, 0, 1)


def tuned(world):
    rows = tune.tuned(world, (8, 4 * EAGER, 1 << 20))
    world.all_reduce(np.ones(1 << 18))
    return rows


@pytest.mark.parametrize("layout", ["2x2", "3x1"])
def test_a_table_is_made_anew(rank_threads, monkeypatch, tmp_path, layout):
    """The same on all ranks, for all sizes; other Worlds go by the default."""
    monkeypatch.setattr(tune, "SECONDS", 1e-3)
    put_on_hosts(monkeypatch, layout)
    size, hosts = size_of(layout), len(LAYOUTS[layout])
    first, *others = rank_threads(tuned, size)
    assert others == [first] * (size - 1)
    assert all(row[:2] == (hosts, size) for row in first)
    assert [row.nbytes for row in first][-1] is None
    write_table(tmp_path / "table.json", tune.table_with(first))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "table.json"))
    read = [Row(*row) for row in json.loads(read_table())]
    assert set(read) == {*first, *DEFAULT}
    assert read[0] == DEFAULT[0]  # of one host


def test_tuning_needs_a_job(tmp_path):
    made = CliRunner().invoke(bench, ["collectives", "--tune", str(tmp_path / "table.json")])
    assert made.exit_code == 1
    assert "start it with `torchrun" in made.output


def one_row(**more):
    return json.dumps([{**Row(None, None, None, "flat")._asdict(), **more}])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no table"),
        ("[]", "its last row must be for all"),
        (one_row(nbytes=5), "its last row"),
        (one_row(ranks=4), "its last row"),
        (one_row(algorithm="round"), "'round'"),
        (one_row(algorithm=5), "no algorithm 5"),
        (one_row(hosts=-1), "not -1"),
        (one_row(slice=7), "16 bytes"),
        (one_row(slice=1 << 63), "up to 64 MiB"),
        (one_row(slice=1 << 64), "is no table"),
        ('[{"host": 1}]', "host"),
    ],
)
def test_a_file_that_is_no_table_is_refused(monkeypatch, tmp_path, text, words):
    (tmp_path / "table.json").write_text(text)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "table.json"))
    with pytest.raises(ValueError, match=words) as caught:
        read_table()
    assert "correct" in str(caught.value) or "unset it" in str(caught.value)


def test_a_file_that_is_missing_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.json"))
    with pytest.raises(OSError, match=r"none.json: No such file.*unset it"):
        read_table()
