"""A rank dies or hangs in the middle of a collective: the others learn it in time, and go on without it."""

import signal

import numpy as np
import pytest
import zerohop as zh
from support import mid_call
from support.attempt import LOST_WITHIN, Attempt
from support.collective_calls import KINDS, Given
from support.link import until
from support.mid_call import FIRST, LAST, PIECES, WAITS, Case
from support.patience import patient
from support.ranks import close, results
from support.spawned import Worker
from zerohop.collectives.lines import EAGER

# Seconds beside those in which a silent rank is seen: there are so many Worlds in one process.
SPREAD = 2.0
SMALL, LARGE = 100, 16 * EAGER
ALL = ("all_gather", "all_to_all", "all_reduce", "scan", "reduce_scatter", "send_recv")
CASES = {
    "small": [
        *(Case(kind, SMALL, FIRST) for kind in (*ALL, "broadcast", "scatter")),
        *(Case(kind, SMALL, FIRST, 0) for kind in ("gather", "reduce")),
        *(Case(kind, SMALL, WAITS) for kind in (*ALL, "gather", "reduce")),
    ],
    "large": [
        *(Case(kind, LARGE, WAITS) for kind in (*ALL, "broadcast", "scatter", "gather", "reduce")),
        *(Case(kind, LARGE, WAITS, 0) for kind in ("broadcast", "scatter", "gather", "reduce")),
        Case("broadcast", LARGE, PIECES, 0),
        *(Case(kind, LARGE, PIECES) for kind in ("all_gather", "reduce_scatter")),
        *(Case(kind, 4 * LARGE, PIECES) for kind in ("all_reduce", "reduce", "scan")),
    ],
}  # fmt: skip


@pytest.fixture
def victim(tmp_path):
    made = Worker("support.mid_call", tmp_path / "job")
    yield made
    made.discard()


def begun(world):
    return len(world._membership.history.log.rows())


def go_on(world):
    """Of those who are left: with right results."""
    for number, nbytes in enumerate((SMALL, LARGE)):
        for kind in KINDS:
            getattr(Given(world, number), kind)(nbytes, number)()
        array = np.arange(nbytes)
        world.all_reduce(array)
        assert (array == world.size * np.arange(nbytes)).all()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("size", CASES)
@pytest.mark.timeout(150)
def test_the_others_go_on_without_it(tmp_path, monkeypatch, victim, p2p, number, size):
    monkeypatch.setattr("zerohop.collectives.exchange.PIECE", mid_call.PIECE)
    cases, options = CASES[size], {"p2p": int(p2p)}
    victim.tell("stand", cases, options)
    made = [
        (case, mid_call.make_world(tmp_path / "job", rank, case, **options))
        for case in cases
        for rank in range(LAST)
    ]
    results([Attempt(mid_call.meet, world) for _, world in made])
    before = {world: begun(world) for _, world in made}
    pending = {
        world: Attempt(mid_call.calls, world, case, mid_call.array_of(world.rank, case))
        for case, world in made
        if case.moment == PIECES
    }
    assert victim.answer() == []
    pending |= {
        world: Attempt(mid_call.calls, world, case, mid_call.array_of(world.rank, case))
        for case, world in made
        if world not in pending
    }
    for case, world in made:
        until(
            lambda case=case, world=world: case.kind == "send_recv" or begun(world) > before[world],
            case.name,
        )
    list(pending.values())[-1].stays_pending(0.1)
    assert all(attempt.pending for attempt in pending.values())

    since = victim.signal(number)
    late = {}
    for case, world in made:
        error = pending[world].failure(zh.PeerLost, 4 * LOST_WITHIN)
        assert f"rank {LAST}" in str(error), case.name
        late[f"rank {world.rank}, {case.name}"] = pending[world].ended_at - since
    within = LOST_WITHIN if number == signal.SIGKILL else LOST_WITHIN + SPREAD
    assert {name: took for name, took in late.items() if took > within} == {}

    smaller = results([Attempt(world.shrink) for _, world in made], patient(60))
    assert {(world.size, world.rank) for world in smaller} == {(LAST, rank) for rank in range(LAST)}
    results([Attempt(go_on, world) for world in smaller], patient(60))
    if number == signal.SIGSTOP:
        victim.signal(signal.SIGCONT)
        endings = victim.ask("go_on")
        assert {
            name: end for name, end in endings.items() if not end.startswith("PeerLost: ")
        } == {}
    close([*smaller, *(world for _, world in made)])
