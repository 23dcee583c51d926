"""A network that is cut without a word, as no fault of soft0 is: no reset, no interface that goes down.

On soft0 between two network namespaces, where control connection and data have a wire each.
"""

import time
from contextlib import ExitStack, suppress
from multiprocessing import Pipe

import pytest
import zerohop as zh
from support import network
from support.attempt import LOST_WITHIN
from support.launchers import needs
from support.link import until
from support.operations import LATER, OPERATIONS

pytestmark = pytest.mark.timeout(120)

# Which ends calls may have come to beside PeerLost: without heartbeats data still goes, until the Peer is lost.
CUTS = {("data", "control"): (), ("control",): ("done",)}
WAITS = {
    "recv",
    "lookup",
    "wait_notify",
    "wait_notify_any",
    "await",
}  # send nothing over the data's wire


@pytest.fixture(scope="module")
def allowed():
    """Skips where a user may have no network of its own, as in some containers."""
    needs(commands=("unshare", "nsenter", "ip"))
    if (reason := network.refused()) is not None:
        pytest.skip(reason)


@pytest.fixture
def wires(allowed):
    with ExitStack() as stack:
        made = network.Network()
        stack.callback(made.close)
        yield made


@pytest.fixture
def ends(wires):
    """Both connected, each with memory at the other."""
    with ExitStack() as stack:
        # What one asks over, the other serves.
        a_asks, b_serves, b_asks, a_serves = map(stack.enter_context, [*Pipe(), *Pipe()])
        made = []
        for place, opposite in enumerate([(a_asks, a_serves), (b_asks, b_serves)]):
            descriptors = [pipe.fileno() for pipe in opposite]
            made.append(network.place(wires, place, descriptors))
            stack.callback(made[-1].discard)
        for end in made:
            end.ask("open")
            end.ask("serve")
        connect(*made)
        for end in made:
            end.ask("prepare")
        yield made


def connect(a, b):
    address = b.ask("address")
    b.tell("accept")
    a.ask("dial", address)
    assert b.answer() is None


def all_end(ends, cut_at, *kinds):
    """In time, and in one of these ways."""
    for end in ends:
        reported = end.ask("ends")
        assert {kind for kind, _ in reported.values()} <= set(kinds), reported
        assert max(ended_at for _, ended_at in reported.values()) - cut_at < LOST_WITHIN, reported


def lost_by_now(ends, cut_at):
    for end in ends:
        until(lambda end=end: not end.ask("is_alive"), "the Peer is lost", 2 * LOST_WITHIN)
    assert time.monotonic() - cut_at < LOST_WITHIN


def serves_again(ends):
    connect(*ends)
    for end in ends:
        end.ask("check")


@pytest.mark.parametrize("cut", CUTS, ids="+".join)
def test_both_ends_learn_of_it_in_the_middle_of_every_operation(wires, ends, cut):
    wires.cut(*cut)
    cut_at = time.monotonic()
    for end in ends:
        end.ask("pend", list(OPERATIONS))
    all_end(ends, cut_at, "PeerLost", *CUTS[cut])
    lost_by_now(ends, cut_at)
    began = time.monotonic()
    for end in ends:  # and at once, of what is called later
        end.ask("pend", LATER)
    all_end(ends, began, "PeerLost")
    assert time.monotonic() < began + 2
    wires.heal()
    serves_again(ends)


@pytest.mark.parametrize("cut", CUTS, ids="+".join)
def test_both_ends_learn_of_it_while_bytes_flow(wires, ends, cut):
    for end in ends:
        end.ask("flow")
    wires.cut(*cut)
    cut_at = time.monotonic()
    all_end(ends, cut_at, "PeerLost", *CUTS[cut])
    lost_by_now(ends, cut_at)
    wires.heal()
    serves_again(ends)


def heals(end):
    """The same Peer: its queue pair is replaced, again and again, until something comes through."""
    with suppress(zh.Error):
        end.ask("check")
        return True


def test_without_the_wire_of_the_data_only_what_is_on_it_fails(wires, ends):
    """As with an adapter's cable: the Peer answers, so waits go on, and it serves once the wire is whole."""
    for end in ends:
        end.ask("flow")
    wires.cut("data")
    cut_at = time.monotonic()
    all_end(ends, cut_at, "VerbsError")
    for end in ends:
        end.ask("pend", [name for name in OPERATIONS if name not in WAITS])
    all_end(ends, time.monotonic(), "VerbsError")
    for end in ends:
        assert end.ask("is_alive")
    wires.heal()
    for end in ends:
        until(lambda end=end: heals(end), "the Peer serves again", 2 * LOST_WITHIN)


def test_idle_ends_learn_of_it(wires, ends):
    wires.cut("data", "control")
    cut_at = time.monotonic()
    lost_by_now(ends, cut_at)
    wires.heal()
    serves_again(ends)


def test_a_moment_without_a_network_is_survived(wires, ends):
    for end in ends:
        end.ask("flow")
    wires.cut("data", "control")
    time.sleep(1.0)  # not to wait for anything: this is what happens to the wires
    wires.heal()
    for end in ends:
        end.ask("goes_on")
        assert end.ask("is_alive")
