"""Reductions: every element is what NumPy makes of the ranks' elements in the order of ranks, bit for bit, on every rank."""

import numpy as np
import pytest
import zerohop as zh
from support.attempt import Attempt
from support.elsewhere import put_elsewhere
from support.hosts import as_the_table_has_it
from support.ranks import close, results, worlds
from support.reduced import FACTOR, HALVES, OPS, given, reduced, same
from zerohop import _core
from zerohop.collectives import exchange
from zerohop.collectives.blocks import Block
from zerohop.collectives.lines import EAGER

PIECE = 1 << 20  # for these tests


def every_call(world, op, dtype, count, number=0):
    rank, size = world.rank, world.size
    more = {"factor": FACTOR} if op == "premul_sum" else {}
    arrays = [given(each, count, dtype, number) for each in range(size)]
    what = f"{op} of {count} {dtype}, {size} ranks"
    everything = reduced(op, arrays)

    here = arrays[rank].copy()
    assert world.all_reduce(here, op, **more).done
    same(here, as_the_table_has_it(world, "all_reduce", op, arrays), f"all_reduce, {what}")
    out, here = np.zeros_like(here), arrays[rank].copy()
    world.all_reduce(here, op, out=out, **more)
    same(out, as_the_table_has_it(world, "all_reduce", op, arrays), f"all_reduce to out, {what}")
    same(here, arrays[rank], f"input of all_reduce, {what}")

    root = number % size
    world.reduce(here, root, op, **more)
    combined = as_the_table_has_it(world, "reduce", op, arrays)
    same(here, combined if rank == root else arrays[rank], f"reduce, {what}")

    if op != "avg":
        here = arrays[rank].copy()
        world.scan(here, op, **more)
        same(here, reduced(op, arrays[: rank + 1]), f"scan, {what}")

    counts = [(each * 7 + number) % 5 for each in range(size)]
    counts[-1] += max(0, count - sum(counts))
    ends = np.cumsum(counts)
    parts = [given(each, ends[-1], dtype, number) for each in range(size)]
    out = np.zeros(counts[rank], parts[0].dtype)
    world.reduce_scatter(out, parts[rank], op, counts=counts, **more)
    same(out, reduced(op, parts)[ends[rank] - counts[rank] : ends[rank]], f"reduce_scatter, {what}")
    even = [np.tile(array, size) for array in arrays]
    out = np.zeros_like(arrays[rank])
    world.reduce_scatter(out, even[rank], op, **more)
    same(out, everything, f"even reduce_scatter, {what}")


def every_type(world, counts):
    for number, (op, dtypes) in enumerate(OPS.items()):
        for dtype in dtypes:
            for count in counts:
                every_call(world, op, dtype, count, number)


def every_size(world):
    eager = (0, 4, EAGER - 4, EAGER, EAGER + 4, 2 * EAGER, 5 * EAGER + 12)
    for nbytes in (*eager, PIECE, PIECE + 4, 2 * PIECE + 4):
        every_call(world, "sum", "float32", nbytes // 4, nbytes)


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.timeout(240)
def test_every_operation_of_every_type(rank_threads, size):
    rank_threads(every_type, size, (5, 1000), deadline=200.0)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9])
@pytest.mark.timeout(240)
def test_every_size(rank_threads, monkeypatch, size):
    monkeypatch.setattr(exchange, "PIECE", PIECE)
    rank_threads(every_size, size, deadline=200.0)


def test_large_arrays_of_every_type(rank_threads):
    rank_threads(every_type, 3, (3 * EAGER // 8,), deadline=100.0)


@pytest.mark.parametrize("elsewhere", [("array", "out", "parts"), ("out",), ("array", "parts")])
def test_what_a_cpu_does_not_reach_is_reduced(rank_threads, monkeypatch, elsewhere):
    """As with arrays of GPUs: everything goes through host memory."""

    def on_host(block):
        return not block.flat.what.startswith(elsewhere)

    monkeypatch.setattr(Block, "on_host", property(on_host))
    monkeypatch.setattr(exchange, "PIECE", PIECE)
    rank_threads(every_size, 3)


@pytest.mark.parametrize("elsewhere", [0, 2])
def test_ranks_with_and_without_a_gpu_reduce_together(rank_threads, monkeypatch, elsewhere):
    put_elsewhere(monkeypatch, elsewhere)
    monkeypatch.setattr(exchange, "PIECE", PIECE)
    rank_threads(every_size, 3)
    rank_threads(every_type, 3, (5,))


def empty_after_odd(world):
    world.all_reduce(np.ones(1025, "f4"), wait=False).wait()
    world.all_reduce(np.empty(0))
    world.all_reduce(np.empty(0), wait=False).wait()
    assert world.all_reduce(1) == world.size


def test_empty_arrays_after_others(rank_threads):
    rank_threads(empty_after_odd, 2)


def in_the_background(world):
    calls = []
    for number in range(20):
        here = np.full(1 + 9000 * (number % 3), float(world.rank + number))
        calls.append((here, number, world.all_reduce(here, wait=False)))
    for here, number, call in calls:
        call.wait()
        assert (here == world.size * number + sum(range(world.size))).all()


def test_calls_that_are_not_waited_for(rank_threads):
    rank_threads(in_the_background, 3)


def numbers(world):
    rank, size = world.rank, world.size
    total = sum(range(size))
    for result, expected in (
        (world.all_reduce(rank), total),
        (world.all_reduce(rank / 2), total / 2),
        (world.all_reduce(rank, "max"), size - 1),
        (world.all_reduce(rank == 1, "lor"), size > 1),
        (world.all_reduce(complex(rank, 1)), complex(total, size)),
        (world.all_reduce(np.float32(rank)), np.float32(total)),
        (world.reduce(rank, 0), total if rank == 0 else None),
        (world.scan(rank + 1), (rank + 1) * (rank + 2) // 2),
        (world.all_reduce(float(rank), "avg"), total / size),
    ):
        assert result == expected
        assert type(result) is type(expected)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_numbers_go_in_and_out(rank_threads, size):
    rank_threads(numbers, size)


def with_gaps(world):
    import torch

    matrix = np.arange(24.0).reshape(4, 6)
    world.all_reduce(matrix[:, ::2])
    assert (matrix[:, ::2] == world.size * np.arange(24.0).reshape(4, 6)[:, ::2]).all()
    assert (matrix[:, 1::2] == np.arange(24.0).reshape(4, 6)[:, 1::2]).all()
    tensor = torch.ones(4, 6, dtype=torch.bfloat16)
    world.all_reduce(tensor.t()[1:3], wait=False).wait()
    assert tensor[:, 1:3].eq(world.size).all()
    assert tensor[:, 3:].eq(1).all()
    leaf = torch.nn.Parameter(torch.ones(4, 6).t())
    with torch.no_grad():
        world.all_reduce(leaf, wait=False).wait()
    assert leaf.eq(world.size).all()
    with torch.inference_mode():
        inferred = torch.ones(4, 6).t()
        world.all_reduce(inferred, wait=False).wait()
        assert inferred.eq(world.size).all()


def test_arrays_with_gaps(rank_threads):
    rank_threads(with_gaps, 2)


def test_nan_is_propagated_and_zeros_keep_their_sign(rank_threads):
    def both(world):
        here = np.array([np.nan if world.rank == 1 else 1.0, -0.0], np.float32)
        world.all_reduce(here, "max")
        assert np.isnan(here[0])
        assert np.signbit(here[1])

    rank_threads(both, 3)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_halves_are_rounded_as_numpy_rounds(name):
    """Every half, and floats between and beyond halves."""
    kind = HALVES[name]
    bits = np.arange(1 << 16, dtype=np.uint16)
    every = bits.view(kind)
    out = np.empty_like(every)
    op = _core.OPS.index("sum")
    with np.errstate(all="ignore"):
        _core.reduce(op, name, 1.0, out.view(np.uint16), [bits])
        finite = ~np.isnan(every.astype(np.float32))
        assert (out.view(np.uint16)[finite] == bits[finite]).all()
        assert np.isnan(out.astype(np.float32)[~finite]).all()
        for other in (1, 0.3, 1e-7, 65504, -65504, 2**-24):
            second = np.full_like(every, other)
            _core.reduce(op, name, 1.0, out.view(np.uint16), [bits, second.view(np.uint16)])
            expected = (every.astype(np.float32) + second.astype(np.float32)).astype(kind)
            assert (out.view(np.uint16)[finite] == expected.view(np.uint16)[finite]).all()


def differ(rank_threads, calls, words):
    made = worlds(rank_threads, range(len(calls)), len(calls))
    attempts = [Attempt(call, world) for call, world in zip(calls, made, strict=True)]
    errors = [str(attempt.failure(ValueError, 8)) for attempt in attempts]
    assert any(all(word in error for word in words) for error in errors)
    close(made)


def test_ranks_that_reduce_differently_get_an_error(rank_threads):
    x = np.ones(3)
    differ(
        rank_threads,
        [lambda w: w.all_reduce(x.copy()), lambda w: w.all_reduce(x.copy(), "max")],
        ["all_reduce (call 1, sum)", "all_reduce (call 1, max)"],
    )
    differ(
        rank_threads,
        [
            lambda w: w.all_reduce(x.copy(), "premul_sum", factor=2),
            lambda w: w.all_reduce(x.copy(), "premul_sum", factor=3),
        ],
        ["premul_sum", "another factor="],
    )
    differ(
        rank_threads,
        [lambda w: w.all_reduce(np.ones(3)), lambda w: w.all_reduce(np.ones(4))],
        ["24 bytes", "32 bytes"],
    )


def test_wrong_arguments_are_named_and_change_nothing(rank_threads):
    import torch

    [world] = worlds(rank_threads, [0], 1)
    for call, kind, words in (
        (lambda: world.all_reduce(np.ones(3), "summe"), ValueError, "no reduction 'summe'.*prod"),
        (lambda: world.all_reduce(np.ones(3), 1), TypeError, "op must be the name"),
        (lambda: world.all_reduce(np.ones(3), "band"), TypeError, "no band of float64"),
        (
            lambda: world.all_reduce(np.ones(3, int), "avg"),
            TypeError,
            "no avg of int64: take the sum",
        ),
        (
            lambda: world.all_reduce(np.array(["a"])),
            TypeError,
            "array: elements of <U1 have no reductions.*float64.*: convert it to one of those",
        ),
        (
            lambda: world.reduce(np.ones(1), out=np.array(["2020"], "M8[D]")),
            TypeError,
            r'out: elements of datetime64\[D\] have.*: view it as "int64"',
        ),
        (lambda: world.reduce_scatter(np.ones(3), [np.ones(3, ">f8")]), TypeError, "parts: .*>f8"),
        (lambda: world.all_reduce(1j, "max"), TypeError, "no max of complex128"),
        (lambda: world.all_reduce(np.ones(3), factor=2), ValueError, "premul_sum"),
        (lambda: world.all_reduce(np.ones(3), "premul_sum"), ValueError, "takes factor="),
        (lambda: world.scan(np.ones(3), "avg"), ValueError, "scan has no avg"),
        (lambda: world.all_reduce(2**63), ValueError, "does not fit int64"),
        (lambda: world.all_reduce(-(2**70)), ValueError, "does not fit int64"),
        (lambda: world.all_reduce(1, wait=False), ValueError, "without out= and wait=False"),
        (lambda: world.all_reduce(np.ones(3), out=np.ones(4)), ValueError, "32 bytes"),
        (lambda: world.all_reduce(np.ones(3), out=np.ones(3, "f4")), ValueError, "float32"),
        (lambda: world.reduce(np.ones(3), 7), IndexError, "root 7"),
        (lambda: world.reduce_scatter(np.ones(3), np.ones(4)), ValueError, "24 bytes"),
    ):
        with pytest.raises(kind, match=words):
            call()
    both = np.ones(6)
    with pytest.raises(ValueError, match="overlaps"):
        world.all_reduce(both[:4], out=both[2:])
    fixed = np.ones(3)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        world.all_reduce(fixed)
    with pytest.raises(ValueError, match="read-only"):
        world.all_reduce(np.broadcast_to(np.ones(3), (4, 3)))
    with pytest.raises(ValueError, match="overlap"):
        world.all_reduce(torch.ones(1).expand(4))
    with pytest.raises(ValueError, match="overlaps"):
        world.reduce_scatter(both[:4], both[2:])
    assert world.all_reduce(1) == 1  # nothing is broken
    close([world])


def test_worlds_of_several_run_the_same_result_twice(rank_threads):
    """Ranks that come in another order change nothing."""
    made = worlds(rank_threads, range(4), 4)
    came = []
    for delay in (range(4), reversed(range(4))):
        arrays = [given(rank, 999, "float32") for rank in range(4)]
        attempts = [Attempt(made[rank].all_reduce, arrays[rank]) for rank in delay]
        results(attempts)
        came += arrays
    assert all((each == came[0]).all() for each in came)
    close(made)


def test_a_scaled_sum_of_the_world(rank_threads):
    [world] = worlds(rank_threads, [0], 1)
    x = np.ones(3)
    world.all_reduce(x, "premul_sum", factor=0.5)
    assert (x == 0.5).all()
    assert isinstance(world.all_reduce(x), zh.Collective)
    close([world])
