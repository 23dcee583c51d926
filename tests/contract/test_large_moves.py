"""Large blocks of host memory between ranks of one host: in slices, written where both ranks send, and beside arrays of GPUs."""

from contextlib import suppress

import numpy as np
import pytest
import zerohop as zh
from support.collective_calls import KINDS, Given
from support.elsewhere import put_elsewhere
from support.patience import patient
from zerohop._world.deadline import Deadline
from zerohop.collectives import desk
from zerohop.collectives.lines import EAGER, Lines

WRITTEN = 8 << 20  # bytes, as in exchange.cpp
BEYOND_CACHES = 32 << 20


def moves(world, *sizes):
    number = 0
    for nbytes in sizes:
        for kind in KINDS:
            number += 1
            getattr(Given(world, number), kind)(nbytes, number % world.size)()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.timeout(patient(200))
def test_very_large_blocks_arrive(rank_threads, size):
    rank_threads(moves, size, 3 * WRITTEN // 2, deadline=patient(180.0))


def past_the_caches(world):
    for number, begin in enumerate((0, 1, 8)):  # at any address
        nbytes = BEYOND_CACHES // 2 + 40
        sent = np.arange(nbytes // 4 + 8, dtype="u4").view(np.uint8)[begin:][:nbytes] + world.rank
        out = np.zeros(2 * nbytes + 16, np.uint8)
        world.all_gather(out[begin + 3 :][: 2 * nbytes], sent)
        for rank in range(2):
            block = out[begin + 3 + rank * nbytes :][:nbytes]
            assert (block == sent - world.rank + rank).all(), number
        assert not out[: begin + 3].any()
        assert not out[begin + 3 + 2 * nbytes :].any()


def test_blocks_that_go_past_the_caches_arrive_at_any_address(rank_threads):
    rank_threads(past_the_caches, 2)


def test_a_long_call_stops_between_two_slices_and_goes_on(rank_threads, monkeypatch):
    stops = []
    hear = Lines.hear
    monkeypatch.setattr(desk, "SLICE", 0.0)
    monkeypatch.setattr(Deadline, "slice", property(lambda deadline: 0.0))
    monkeypatch.setattr(Lines, "hear", lambda *given: stops.append(1) or hear(*given))
    rank_threads(moves, 2, 40 * EAGER + 8)
    assert len(stops) > 40


@pytest.mark.parametrize("elsewhere", [0, 2])
@pytest.mark.timeout(patient(100))
def test_ranks_with_and_without_a_gpu_exchange_large_blocks(rank_threads, monkeypatch, elsewhere):
    put_elsewhere(monkeypatch, elsewhere)
    rank_threads(moves, 3, 2 * EAGER, 15 * EAGER + 8, deadline=patient(90.0))


def registrations(world):
    moves(world, 8)  # the ranks meet
    registered = []
    register = world.endpoint.register
    world.endpoint.register = lambda *given, **named: (
        registered.append(1) or register(*given, **named)
    )
    moves(world, 15 * EAGER)
    return len(registered)


@pytest.mark.parametrize("p2p", [1, 0])
def test_slices_need_no_registration(rank_threads, monkeypatch, p2p):
    monkeypatch.setenv("ZEROHOP_P2P", str(p2p))
    for count in rank_threads(registrations, 3):
        assert (count == 0) == bool(p2p)


def sends_to_one_in_a_hurry(world):
    moves(world, 8)  # the ranks meet
    block = np.zeros(BEYOND_CACHES, np.uint8)
    if world.rank == 0:
        with suppress(zh.Error):  # it does not end well, unless the block was written meanwhile
            world.send_recv(to=1, array=block)
    else:
        with pytest.raises(zh.TransferTimeout):
            world.send_recv(from_=0, out=block, timeout=1e-4)


def test_the_receivers_timeout_holds_while_slices_come(rank_threads):
    rank_threads(sends_to_one_in_a_hurry, 2)
