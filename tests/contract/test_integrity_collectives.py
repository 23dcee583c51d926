"""integrity=1: no collective returns damaged bytes, and all ranks learn in time what was damaged."""

import pytest
import zerohop as zh
from support.attempt import Attempt, within
from support.collective_calls import Given
from support.ranks import close, results, worlds
from zerohop.collectives.lines import EAGER

KINDS = ["broadcast", "scatter", "all_gather", "all_to_all"]
SIZES = [1000, 50_000, 3 << 20]  # bytes: along with their header twice, and written to their place
SOON = 8.0  # seconds; the calls themselves have a minute
ALL_ALTERED = "seed=3,alter=1"
# what a rank reports that wrote to a rank whose call had ended: by the write, by the check behind it
TOO_LATE = ("closed or dropped it", "its memory was closed by its owner")


def call(world, number, kind, nbytes):
    """Checks all that has come, byte for byte."""
    getattr(Given(world, number), kind)(nbytes, 0)()


@pytest.fixture
def ranks(rank_threads):
    """Of one World, with options."""
    made = []

    def make(size, **options):
        made.extend(worlds(rank_threads, range(size), size, device="soft0", integrity=1, **options))
        return made

    yield make
    close(made)


@pytest.mark.parametrize("p2p", [0, 1])
@pytest.mark.parametrize("size", [2, 3])
def test_what_is_whole_arrives(ranks, size, p2p):
    made = ranks(size, p2p=p2p)
    for number, nbytes in enumerate([0, 1, *SIZES, EAGER, EAGER + 1]):
        for kind in KINDS:
            results([Attempt(call, world, number, kind, nbytes) for world in made])


def calls(world, kind, nbytes):
    """Some, of which rank 0 damages what it sends in the first. Returns what ended them; they check what they return."""
    try:
        for number in range(4):
            call(world, number, kind, nbytes)
            if world.rank == 0:
                world.endpoint.set_faults(None)
    except zh.Error as error:
        return error
    return None


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_rank_returns_what_was_damaged(ranks, kind, nbytes, size):
    made = ranks(size, p2p=0, timeout=60.0)
    results([Attempt(call, world, 0, kind, nbytes) for world in made])
    made[0].endpoint.set_faults(ALL_ALTERED)
    with within(SOON):
        errors = results([Attempt(calls, world, kind, nbytes) for world in made])
    assert all(errors)
    for error in errors[1:]:
        assert any(text in str(error) for text in ("delivered wrong data", *TOO_LATE))
    assert "delivered wrong data" in str(errors[0])
    assert isinstance(errors[0], zh.IntegrityError)
    assert f"{kind} of 'world', call 2: rank " in str(errors[0])
    assert errors[0].nbytes > 0
    assert errors[0].effect == "some"
