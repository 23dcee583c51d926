"""What the end of a World warns of: arrays that nobody has received, and calls that nobody waited for."""

import numpy as np
import pytest
import zerohop as zh
from support.attempt import Attempt
from support.link import until
from support.ranks import close, results


@pytest.fixture(autouse=True)
def met(pair):
    """They have exchanged something before, so that each has a place for what is sent."""
    results([Attempt(meet, world) for world in pair])


def meet(world):
    for source in range(2):
        world.broadcast(np.zeros(3), source)


def go_on(world):
    """The rank that sent it may learn of it in the next call."""
    world.all_gather(np.zeros((2, 3)), np.zeros(3))
    world.barrier()


def arrived(first, second):
    """What rank 0 has sent is here: a notification that follows on the same queue pair is."""
    first.peer(1).notify(7, 1).wait()
    assert second.endpoint.wait_notify(7) == 1


def untaken_by(world):
    with pytest.warns(RuntimeWarning) as reported:
        world.close()
    [one] = reported
    return str(one.message)


@pytest.mark.parametrize("number", [1, 3])
def test_what_is_never_taken_is_reported_at_the_end(pair, number):
    first, second = pair
    for _ in range(number):
        first.send_recv(to=1, array=np.zeros(3, "int32"))
    arrived(first, second)
    text = untaken_by(second)
    assert text.startswith("rank 1 leaves the World 'world' without what others have sent: rank 0")
    assert "send_recv (call 1) with 3 elements of int32 (12 bytes)" in text
    assert ("and 2 more" in text) == (number == 3)
    assert "with from_=" in text
    first.close()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_next_collective_finds_it(pair):
    """What is sent before a collective of all is received before it."""
    pair[0].send_recv(to=1, array=np.zeros(3))
    calls = [Attempt(go_on, world) for world in pair]
    for call in calls:
        error = str(call.failure(ValueError, 5))
        assert "rank 0 has called send_recv (call 1) with 3 elements of float64 (24 bytes)" in error
        assert "rank 1 all_gather (call 3)" in error


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_so_it_does_if_it_was_put_aside(pair):
    """It came while this rank waited for something else of the same pair."""
    first, second = pair
    large = np.zeros(1 << 20, np.uint8)
    first.send_recv(to=1, array=np.zeros(3))
    coming = Attempt(lambda: first.send_recv(from_=1, out=np.zeros(1 << 20, np.uint8)))
    second.send_recv(to=0, array=large)  # waits until the other one says where to
    coming.value()
    calls = [Attempt(go_on, world) for world in pair]
    for call in calls:
        assert "rank 0 has called send_recv (call 1)" in str(call.failure(ValueError, 5))


def test_nothing_is_reported_of_what_is_taken(pair):
    first, second = pair
    for number in range(20):
        sent = Attempt(lambda n=number: first.send_recv(to=1, array=np.full(3, n)))
        out = np.zeros(3, np.int64)
        second.send_recv(from_=0, out=out)
        sent.value()
        assert (out == number).all()
    close(pair)  # a warning would be an error


def test_calls_that_nobody_waits_for_are_reported_where_the_block_ends(pair):
    arrays = [np.zeros(3), np.zeros(3)]
    calls = [pair[1].all_reduce(each, wait=False) for each in arrays]  # the other rank never comes
    text = untaken_by(pair[1])
    assert text.startswith(
        "rank 1 closes the World 'world' before calls with wait=False have ended: "
    )
    assert "all_reduce of 'world', call 3, all_reduce of 'world', call 4; " in text
    assert text.endswith("call wait() on what they returned first")
    for call in calls:
        with pytest.raises(zh.Error):
            call.wait()


def test_a_call_that_has_ended_is_not_reported(pair):
    calls = [world.all_reduce(np.ones(3), wait=False) for world in pair]
    until(lambda: all(call.done for call in calls), "both have ended")
    close(pair)  # a warning would be an error
