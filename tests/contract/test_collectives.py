"""Collectives: every output is there, byte for byte, whoever sends how much of which kind to whom."""

import importlib

import numpy as np
import pytest
import zerohop as zh
from support.attempt import Attempt
from support.collective_calls import KINDS, POISON, Given, Guarded, content, wrong
from support.patience import SLOW
from support.ranks import close, results, worlds
from zerohop.collectives.blocks import Block
from zerohop.collectives.desk import Desk
from zerohop.collectives.lines import EAGER

PIECE = 16 << 20  # bytes that a broadcast has on the way at a time
SIZES = (0, 1, 1237, EAGER - 1, EAGER, EAGER + 1, 5 * EAGER + 3)
ROUNDS = int(60 / SLOW)


def every_size(world, sizes, kinds=KINDS):
    number = 0
    for nbytes in sizes:
        for kind in kinds:
            for root in {0, world.size - 1}:
                number += 1
                getattr(Given(world, number), kind)(nbytes, root)()


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.timeout(180)
def test_what_is_sent_arrives(rank_threads, size):
    rank_threads(every_size, size, SIZES, deadline=150.0)


@pytest.mark.parametrize("elsewhere", [("array", "out", "parts"), ("out",), ("array", "parts")])
def test_what_a_cpu_does_not_reach_arrives(rank_threads, monkeypatch, elsewhere):
    """As with arrays of GPUs: no block goes along with its header, nothing is copied by NumPy."""

    def on_host(block):
        return not block.flat.what.startswith(elsewhere)

    monkeypatch.setattr(Block, "on_host", property(on_host))
    rank_threads(every_size, 3, SIZES)
    rank_threads(every_dtype, 3, of_numpy, ("float32", "int64"))


def equal_blocks(world, nbytes, listed):
    """One array of equal parts, or a list of arrays on the ranks that are `listed`: they go different ways within a rank."""
    rank, everyone = world.rank, range(world.size)
    for number in range(5):
        sent = np.stack([content(number, rank, to, nbytes) for to in everyone])
        to_rank = [content(number, source, rank, nbytes) for source in everyone]
        to_first = [content(number, source, 0, nbytes) for source in everyone]
        root = number % world.size

        def given(parts):
            return list(parts) if rank in listed else parts

        def check(came, expected, what):
            assert np.array_equal(came, expected), f"{what}: {wrong(came.ravel(), expected)}"

        out = np.full_like(sent, POISON)
        world.all_to_all(given(out), given(sent))
        check(out, np.stack(to_rank), "all_to_all")
        out[:] = POISON
        world.all_gather(given(out), sent[0])
        check(out, np.stack(to_first), "all_gather")
        out[:] = POISON
        out[rank] = sent[0]
        world.all_gather(given(out), out[rank])  # in place
        check(out, np.stack(to_first), "all_gather in place")
        out[:] = POISON
        world.gather(given(out) if rank == root else None, sent[0], root)
        expected = np.stack(to_first) if rank == root else np.full_like(out, POISON)
        check(out, expected, "gather")
        out[:] = POISON
        world.scatter(out[1], given(sent) if rank == root else None, root)
        check(out[1], to_rank[root], "scatter")
        assert (out[[0, *range(2, world.size)]] == POISON).all()


@pytest.mark.parametrize("size", [2, 3, 9])
@pytest.mark.timeout(180)
def test_equal_blocks_arrive(rank_threads, size):
    for listed in ([], [1], range(size)):
        for nbytes in (1, 1237, EAGER, EAGER + 1):
            rank_threads(equal_blocks, size, nbytes, listed, deadline=60.0)


@pytest.mark.parametrize("sender", [0, 1])
def test_a_small_block_that_is_announced_arrives(rank_threads, monkeypatch, sender):
    """As from a GPU to a host: who receives it has planned for what comes with its header."""
    monkeypatch.setattr(Block, "on_host", property(lambda block: block.flat.what == "out"))
    monkeypatch.setattr(
        "zerohop.collectives.desk.Desk.at_once",
        lambda desk, *given, at_once=Desk.at_once: (
            None if desk._membership.rank == sender else at_once(desk, *given)
        ),
    )
    rank_threads(equal_blocks, 2, 1237, [])


@pytest.mark.parametrize("size", [3, 4, 7])
def test_a_broadcast_in_pieces_arrives(rank_threads, monkeypatch, size):
    monkeypatch.setattr("zerohop.collectives.desk.Desk.at_once", lambda *given: None)
    monkeypatch.setattr("zerohop.collectives.exchange.PIECE", 100_000)
    rank_threads(every_size, size, (EAGER + 1, 200_001, 1_000_003), ["broadcast"])


@pytest.mark.timeout(180)
def test_large_arrays_arrive(rank_processes):
    rank_processes(every_size, 2, (5_000_001,), timeout=60.0)
    rank_processes(every_size, 3, (PIECE + 77,), ["broadcast", "send_recv"], timeout=60.0)


def random_calls(world, seed, rounds):
    """Any kinds, roots and sizes, waited for at once or some calls later."""
    plan = np.random.default_rng(seed)
    under_way = []
    for number in range(1, rounds + 1):
        kind, root = KINDS[plan.integers(len(KINDS))], int(plan.integers(world.size))
        nbytes = int(2 ** plan.uniform(0, 18)) - 1
        wait = bool(plan.integers(2))
        finish = getattr(Given(world, number, wait), kind)(nbytes, root)
        if wait:
            finish()
        else:
            under_way.append(finish)
        while len(under_way) > plan.integers(5):
            under_way.pop(0)()
    for finish in under_way:
        finish()


@pytest.mark.parametrize("size", [4, 7])
@pytest.mark.timeout(180)
def test_random_calls_arrive(rank_threads, size):
    """Of few ranks: test_programs.py has more of them."""
    rank_threads(random_calls, size, 100 * size, ROUNDS, timeout=60.0, deadline=150.0)


DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    "complex64", "complex128",
)  # fmt: skip


def every_dtype(world, made_by, dtypes):
    """Of both protocols; what is gathered is shown as the other library has it."""
    for dtype in dtypes:
        for count in (5, EAGER):
            mine = made_by(count, dtype, world.rank)
            out = made_by(world.size * count, dtype, 0)
            world.all_gather(out, mine)
            world.broadcast(mine, world.size - 1)
            for rank in range(world.size):
                part = out[rank * count : (rank + 1) * count]
                assert bool((part == made_by(count, dtype, rank)).all()), dtype
            assert bool((mine == made_by(count, dtype, world.size - 1)).all()), dtype


def of_numpy(count, dtype, rank):
    return (np.arange(count) % 2 + rank).astype(dtype)


def of_torch(count, dtype, rank):
    torch = importlib.import_module("torch")
    return (torch.arange(count) % 2 + rank).to(getattr(torch, dtype))


@pytest.mark.parametrize("made_by", [of_numpy, of_torch])
def test_every_dtype_arrives(rank_threads, made_by):
    if made_by is of_torch:
        importlib.import_module("torch")  # seconds, the first time: not in a deadline of the test
    more = ("bfloat16", "float8_e4m3fn") if made_by is of_torch else ("uint16", "uint32", "uint64")
    rank_threads(every_dtype, 2, made_by, (*DTYPES, *more))


def several_libraries(world):
    """Each rank with arrays of its own kind; JAX's are read."""
    jax = importlib.import_module("jax.numpy") if world.rank == 2 else None
    torch = importlib.import_module("torch")
    out = [np.zeros(6, "float32"), torch.zeros(6), world.endpoint.empty(6, "float32")][world.rank]
    mine = (np.ones(2, "f4"), torch.ones(2), jax.ones(2) if jax else None)[world.rank]
    world.all_gather(out, mine)
    assert np.asarray(out).tolist() == [1.0] * 6


def test_libraries_meet(rank_threads):
    importlib.import_module("jax")
    importlib.import_module("torch")
    rank_threads(several_libraries, 3)


def shapes(world):
    """Lists, counts, even cuts, several axes, no axes, arrays of the Endpoint."""
    size, rank, right = world.size, world.rank, (world.rank + 1) % world.size
    table = np.arange(size * 6, dtype=np.int64).reshape(size * 2, 3)
    out = np.zeros((2, 3), np.int64)
    world.scatter(out, table if rank == 1 else None, 1)
    assert (out == table[2 * rank : 2 * rank + 2]).all()
    whole = np.zeros((size, 2, 3), np.int64)
    world.all_gather(whole, out)
    assert (whole.reshape(table.shape) == table).all()
    counts = [0, 3, *[1] * (size - 2)]
    rows = np.full((sum(counts), 4), -1, np.int16)
    world.all_gather(rows, np.full((counts[rank], 4), rank, np.int16), counts=counts)
    assert rows[:, 0].tolist() == np.repeat(range(size), counts).tolist()
    number = np.array(rank)
    numbers = [np.array(-1) for _ in range(size)]
    world.gather(numbers if rank == 0 else None, number, 0)
    assert rank or numbers == list(range(size))
    parts = np.repeat(np.arange(size), counts).astype(np.uint32)
    came = np.zeros(counts[rank] * size, np.uint32)
    world.all_to_all(came, parts, counts=counts, out_counts=[counts[rank]] * size)
    assert came.tolist() == [rank] * len(came)
    mine, theirs = world.endpoint.empty(EAGER, "f8"), world.endpoint.empty(EAGER, "f8")
    np.asarray(mine)[:] = rank
    world.send_recv(to=right, array=mine, from_=(rank - 1) % size, out=theirs[:])
    assert (np.asarray(theirs) == (rank - 1) % size).all()
    assert not mine.closed
    assert not theirs.closed


@pytest.mark.parametrize("size", [2, 3])
def test_arrays_are_cut_as_the_program_says(rank_threads, size):
    rank_threads(shapes, size)


def in_place(world, nbytes):
    rank, size = world.rank, world.size
    out = np.zeros((size, nbytes), np.uint8)
    out[rank] = 1 + rank
    world.all_gather(out, out[rank])
    assert out[:, 0].tolist() == out[:, -1].tolist() == list(range(1, size + 1))
    world.gather(out if rank == 0 else None, out[rank], 0)
    world.scatter(out[rank], out if rank == 0 else None, 0)
    same = [out[each] if each == rank else np.full(nbytes, 9, np.uint8) for each in range(size)]
    world.all_to_all(same, out)
    assert [each[0] for each in same] == [1 + rank] * size


@pytest.mark.parametrize("nbytes", [100, EAGER + 1])
def test_the_own_block_may_lie_where_it_goes_to(rank_threads, nbytes):
    rank_threads(in_place, 3, nbytes)


def one_way(world, times):
    """Some ranks only send, others only receive; of what is sent early nothing is lost, and the order is kept."""
    if world.rank == 0:
        for number in range(times):
            world.send_recv(to=1, array=np.array([number]))
        world.send_recv(to=1, array=np.full(EAGER, 7, np.uint8), from_=1, out=np.empty(3, "f4"))
    if world.rank == 1:
        world.send_recv(to=0, array=np.zeros(3, "f4"))  # early: rank 0 receives it last
        for number in range(times):
            out = np.array([-1])
            world.send_recv(from_=0, out=out)
            assert out[0] == number
        out = np.zeros(EAGER, np.uint8)
        world.send_recv(from_=0, out=out)
        assert (out == 7).all()
    numbers = np.zeros(3, np.int64)
    world.all_gather(numbers, np.array([world.rank]))
    assert numbers.tolist() == [0, 1, 2]


def test_two_ranks_exchange_without_the_others(rank_threads):
    rank_threads(one_way, 3, int(50 / SLOW))


def opposite(world, nbytes):
    """Each sends before it looks for what comes."""
    other, out = 1 - world.rank, Guarded(nbytes)
    world.send_recv(to=other, array=np.full(nbytes, world.rank, np.uint8))
    world.send_recv(from_=other, out=out.array)
    out.check(np.full(nbytes, other, np.uint8), "send_recv")


def test_small_arrays_are_sent_before_they_are_asked_for(rank_threads):
    rank_threads(opposite, 2, EAGER)


def opposite_in_vain(world, nbytes):
    with pytest.raises(
        zh.Error, match=r"send_recv of 'world': .*rank \d has not made the matching call in time"
    ):
        opposite(world, nbytes)


def test_large_arrays_are_not(rank_threads):
    rank_threads(opposite_in_vain, 2, EAGER + 1, timeout=1.0)


def connections(world):
    array = np.full(10, world.rank)
    world.broadcast(array, 0)
    return array[0], len(world.endpoint.peers)


def test_a_broadcast_connects_few_ranks(rank_threads):
    made = worlds(rank_threads, range(16), 16)
    answers = results([Attempt(connections, world) for world in made])
    close(made)
    assert [value for value, _ in answers] == [0] * 16
    assert [peers for _, peers in answers] == [4, 1, 2, 1, 3, 1, 2, 1, 4, 1, 2, 1, 3, 1, 2, 1]


def ring(world):
    """Every rank is in a send to the next one before anyone receives."""
    for each in (world, world.split(range(world.size))):
        got = np.zeros(4)
        each.send_recv(to=(each.rank + 1) % each.size, array=np.full(4, float(each.rank)))
        each.send_recv(from_=(each.rank - 1) % each.size, out=got)
        assert (got == (each.rank - 1) % each.size).all()


@pytest.mark.parametrize("size", [2, 3, 5])
def test_small_arrays_are_sent_round_a_ring_before_anyone_receives(rank_threads, size):
    rank_threads(ring, size)
