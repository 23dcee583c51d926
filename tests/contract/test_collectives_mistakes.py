"""What collectives refuse, how calls that do not match are found, and what is left after that."""

import numpy as np
import pytest
import zerohop as zh
from support.attempt import Attempt, within
from support.ranks import TIMEOUT, close, results, worlds
from zerohop.collectives.lines import EAGER


def all_gather(world, count=5):
    world.all_gather(np.zeros(2 * count, "f4"), np.zeros(count, "f4"))


LATE = "rank 1 has not made the matching call in time"


def test_who_does_not_come_is_named(pair):
    first, second = pair
    with (
        pytest.raises(zh.TransferTimeout, match=rf"broadcast of 'world', call 1: {LATE}"),
        within(2, 0.3),
    ):
        first.broadcast(np.zeros(EAGER + 1, np.uint8), timeout=0.3)
    with pytest.raises(zh.Error, match=f"ended: {LATE}"), within(1):
        first.broadcast(np.zeros(3))
    with pytest.raises(zh.TransferTimeout, match=f"call 1: {LATE} .*reported by rank 0"), within(2):
        second.broadcast(np.zeros(EAGER + 1, np.uint8))
    results([Attempt(world.barrier) for world in pair])
    second.peer(0).notify(3, 4).wait()  # the World itself goes on
    assert first.endpoint.wait_notify(3) == 4


def gather_with(world, out):
    world.gather(out, np.full(3, world.rank + 1.0), timeout=0.3 if world.rank == 0 else TIMEOUT)


def test_who_has_done_its_part_learns_of_a_timeout_in_the_next_call(rank_threads):
    made = worlds(rank_threads, range(3), 3)
    out = np.zeros((3, 3))
    root, other = [
        Attempt(gather_with, world, out if world.rank == 0 else None) for world in made[:2]
    ]
    late = "rank 2 has not made the matching call in time"
    assert late in str(root.failure(zh.TransferTimeout, 5))
    other.value()
    results([Attempt(world.barrier) for world in made[:2]] + [Attempt(gather_late, made[2])])
    for call in [Attempt(world.all_gather, np.zeros(3), np.zeros(1)) for world in made]:
        assert late in str(call.failure(zh.Error, 5))
    close(made)


def gather_late(world):
    gather_with(world, None)  # small enough to be sent without an answer
    world.barrier()


def test_outputs_stay_as_they_are_after_a_timeout(pair):
    """What the other rank has yet to write it can write no more."""
    first, second = pair
    out = np.zeros(4 * EAGER, np.uint8)
    with pytest.raises(zh.TransferTimeout):
        second.broadcast(out, timeout=0.3)
    out[:] = 5
    with pytest.raises(zh.Error, match="has not made the matching call in time"):
        first.broadcast(np.ones(4 * EAGER, np.uint8))
    assert (out == 5).all()


def test_a_timeout_of_what_is_not_waited_for_is_reported_later(pair):
    call = pair[0].gather(np.zeros(6), np.zeros(3), timeout=0.2, wait=False)
    behind = pair[0].broadcast(np.zeros(3), wait=False)
    with pytest.raises(zh.TransferTimeout, match=f"gather of 'world', call 1: {LATE}"):
        call.wait(TIMEOUT)
    with pytest.raises(
        zh.Error, match=r"broadcast of 'world', call 2: the collectives .* have ended"
    ):
        behind.wait(TIMEOUT)
    assert "failed" in repr(call)


def test_arguments_are_refused_before_anything_happens(rank_threads):
    [world] = worlds(rank_threads, [0], 2)
    table, row = np.zeros((4, 3)), np.zeros((2, 3))
    read_only = np.zeros(3)
    read_only.flags.writeable = False
    foreign = zh.Endpoint("soft0")
    refused = [
        (IndexError, "ranks go from 0 to 1", lambda: world.broadcast(row, 2)),
        (TypeError, "list", lambda: world.broadcast([1, 2, 3])),
        (TypeError, "root must be an integer, not '0'", lambda: world.broadcast(row, "0")),
        (IndexError, "from_= 2: ranks go", lambda: world.send_recv(from_=2, out=row)),
        (TypeError, "parts is None.* a list of 2 arrays", lambda: world.scatter(row)),
        (TypeError, r"parts\[0\]: a NoneType is not an array", lambda: world.scatter(row, [None, row])),
        (TypeError, "counts of parts must be a list of 2 numbers", lambda: world.scatter(row, table, counts=2)),
        (TypeError, "each of the counts of parts must be an integer, not 2.0",
         lambda: world.scatter(row, table, counts=[2.0, 2.0])),
        (TypeError, "timeout must be a number of seconds, not '1'", lambda: world.broadcast(row, timeout="1")),
        (ValueError, "array must be contiguous", lambda: world.broadcast(table[:, 1])),
        (ValueError, "array is written, but read-only", lambda: world.broadcast(read_only, 1)),
        (ValueError, "another Endpoint", lambda: world.broadcast(foreign.empty(3))),
        (zh.RegistrationError, "closed", lambda: world.broadcast(closed_memory(world))),
        (ValueError, "cannot be split into 2 equal", lambda: world.scatter(row, np.zeros((5, 3)))),
        (ValueError, "cannot be split into 2 equal", lambda: world.all_gather(np.array(3.0), np.zeros(0))),
        (ValueError, r"with the sum 4, not \[1, 2\]", lambda: world.scatter(row, table, counts=[1, 2])),
        (ValueError, "2 numbers of rows", lambda: world.scatter(row, table, counts=[2, 1, 1])),
        (ValueError, "parts has 3 arrays for 2", lambda: world.scatter(row, [row] * 3)),
        (ValueError, r"out has 6 elements of float64 \(48 bytes\), this rank's part of parts 3 elements",
         lambda: world.scatter(row, np.zeros((2, 3)))),
        (ValueError, "array is of float32, out of float64",
         lambda: world.all_gather(table, np.zeros((4, 3), "f4"))),
        (ValueError, "overlaps", lambda: world.all_gather(table, table[1:3])),
        (ValueError, "overlaps", lambda: world.send_recv(to=1, array=row, from_=1, out=row)),
        (ValueError, "to= needs array=", lambda: world.send_recv(to=1)),
        (ValueError, "to itself", lambda: world.send_recv(to=0, array=row)),
    ]  # fmt: skip
    for kind, words, call in refused:
        with pytest.raises(kind, match=words):
            call()
    foreign.close()
    [other] = worlds(rank_threads, [1], 2)
    came = Attempt(other.broadcast, row)
    world.broadcast(np.ones((2, 3)))
    came.value()
    assert (row == 1).all()
    close([world, other])


def closed_memory(world):
    memory = world.endpoint.empty(3)
    memory.close()
    return memory


def test_a_world_of_very_many_ranks_has_no_collectives(rank_threads):
    [world] = worlds(rank_threads, [0], 10_000)
    with pytest.raises(
        zh.RouteUnavailable, match="10000 ranks has fewer than two slots left per rank"
    ):
        world.broadcast(np.zeros(3))
    world.segment(8).close()
    world.close()


def test_segments_keep_out_of_the_slots_of_collectives(rank_threads):
    [world] = worlds(rank_threads, [0], 1000)
    free = 65536 - 64 - 16384 - 2000
    with pytest.raises(ValueError, match=f"of {free} the World's"):
        world.segment(8, notifications=free + 1)
    assert world.segment(8, notifications=free).slots.stop == 65536 - 64 - 2000
    world.close()


def test_a_send_recv_of_other_sizes_has_its_own_rule(pair):
    first, second = pair
    results([Attempt(all_gather, world) for world in pair])
    first.send_recv(to=1, array=np.zeros(16, np.uint8))
    with pytest.raises(
        ValueError, match=r"with 16 bytes .*: the array received into must have the size and"
    ):
        second.send_recv(from_=0, out=np.zeros(8, np.uint8))


def test_an_array_that_cannot_be_exported_is_named(pair):
    class Refusing:
        def __init__(self, error):
            self.error = error

        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            raise self.error

    class Own(BufferError):
        def __init__(self, one, two):
            super().__init__(f"{one} and {two}")

    for error in (BufferError("not now"), Own(1, 2)):
        with pytest.raises(BufferError, match=f"^array: .*{error}"):
            pair[0].broadcast(Refusing(error))
