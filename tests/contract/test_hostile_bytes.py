"""Strangers and damage on the wire, and names that are no text: typed errors, no crash, nobody else is held up."""

import random
import re
import socket
from contextlib import ExitStack, suppress

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.attempt import LOST_WITHIN, Attempt, within
from support.forge import with_other_port
from support.keeper import keep
from support.kept_logs import keeping
from support.link import until
from support.proxy import Proxy, cut, flip, nothing, withhold
from support.system import connected_sockets, listening_ports
from zerohop.observe.metrics import prometheus

RNG = random.Random(5)
GARBAGE = {
    "nothing": b"",
    "one byte": b"z",
    "zeros": bytes(5000),
    "ones": b"\xff" * 5000,
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("1603010200010001fc0303") + RNG.randbytes(500),
    "random": RNG.randbytes(20_000),
    "the magic of an address": b"zhad\1" + RNG.randbytes(300),
    "huge lengths": b"\xff\xff\xff\x7f" * 300,
}


def check_working(session):
    with within(5):
        session.check()


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_to_every_port_does_no_harm(process, open_endpoint, name):
    with process(keep) as s:
        for place in listening_ports(s.pid):
            for leave_open in (True, False):
                with ExitStack() as stack:
                    held = [stack.enter_context(socket.create_connection(place)) for _ in range(3)]
                    for connection in held:
                        with suppress(OSError):  # it may hang up on us at any byte
                            connection.sendall(GARBAGE[name])
                            if not leave_open:
                                connection.shutdown(socket.SHUT_WR)
                    check_working(s)
                    with within(5):
                        open_endpoint().connect(s.address)
        assert s.keeper.peer()[0]


def inject(deed):
    """Does something to each TCP connection of this process, as a broken network would."""
    done = 0
    for descriptor in connected_sockets():
        with suppress(OSError):  # an older endpoint's, closed meanwhile; or full
            with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as wire:
                wire.setblocking(False)
                deed(wire)
            done += 1
    assert done >= 1, "no TCP connection was found"


DEEDS = {
    "random bytes": lambda wire: wire.send(RNG.randbytes(3000)),
    "a few zeros": lambda wire: wire.send(bytes(3)),
    "many zeros": lambda wire: wire.send(bytes(5000)),
    "half a close": lambda wire: wire.shutdown(socket.SHUT_WR),
    "a close": lambda wire: wire.shutdown(socket.SHUT_RDWR),
}


@pytest.mark.parametrize("idle", [True, False])
@pytest.mark.parametrize("name", DEEDS)
def test_damage_to_open_connections_is_noticed_and_survived(process, name, idle):
    """Bytes nobody sent, in the middle of a connection: no crash, no false data, a new start."""
    with process(keep) as s:
        memory, _ = array(s.ep, "numpy", np.ones(1 << 20, np.uint8))
        target = s.keeper.array("empty", np.zeros(1 << 20, np.uint8))
        flowing = None if idle else Attempt(write_for_ever, s.peer, memory, target.remote)
        inject(DEEDS[name])
        if flowing is None:
            flowing = Attempt(write_for_ever, s.peer, memory, target.remote)
        error = flowing.failure(zh.Error, timeout=2 * LOST_WITHIN)
        assert not isinstance(error, zh.TransferTimeout)
        assert set(np.unique(target.show())) <= {0, 1}
        s.peer.close()
        s.peer = s.ep.connect(s.address)
        check_working(s)


def write_for_ever(peer, memory, far):
    while True:
        peer.write(memory, far).wait()


PLACES = [0, 3, 7, 9, 20, 39, 40, 50, 63, 64, 66, 70, 90, 110, 150, 200, 300]


@pytest.mark.parametrize("damage", [flip, cut, withhold])
@pytest.mark.parametrize("direction", ["there", "back"])
def test_damage_while_connecting_is_a_typed_error(thread, open_endpoint, damage, direction):
    """Each place of the handshake in turn: connect fails soon, or the damage came too late."""
    with thread(keep, connected=False) as s:
        ports = listening_ports()
        refused = 0
        places = PLACES if damage is flip else PLACES[::2]  # those take their time
        for place in places:
            ep = open_endpoint()
            target = control_port(s.address, ports)
            with Proxy(target, **{direction: damage(place)}) as proxy:
                address = with_other_port(s.address, [target[1]], proxy.port)
                with within(LOST_WITHIN):
                    refused += not connects(ep, address)
            ep.close()
        assert refused >= len(places) / 2, "the damage never mattered"
        with within(5):
            assert open_endpoint().connect(s.address).alive


def connects(ep, address):
    try:
        ep.connect(address, timeout=0.5)
    except zh.Error:
        return False
    return True


def control_port(address, ports):
    """The one of the listening ports that is named in the address."""
    for place in ports:
        with suppress(AssertionError):
            with_other_port(address, [place[1]], 1)
            return place
    raise AssertionError("no listening port is in the address")


@pytest.fixture
def proxied(process):
    """A session whose control channel passes a Proxy, which the test may arm."""
    armed = {"there": nothing, "back": nothing}
    with process(keep_unconnected, connected=False) as s:
        target = control_port(s.address, listening_ports(s.pid))
        hooks = {way: lambda at, chunk, way=way: armed[way](at, chunk) for way in armed}
        with Proxy(target, **hooks) as proxy:
            s.proxy, s.armed = proxy, armed
            s.peer = s.ep.connect(with_other_port(s.address, [target[1]], proxy.port))
            assert s.keeper.peer()[0]
            yield s


def keep_unconnected(ep, peer, link):
    keep(ep, ep.accept(timeout=10), link)


@pytest.mark.parametrize("way", ["there", "back"])
@pytest.mark.parametrize("deed", ["flip", "cut", "swallow", "double"])
def test_damage_to_control_messages_ends_the_peer(proxied, way, deed):
    """Later than the handshake: heartbeats and lookups are changed, lost or repeated."""
    deeds = {
        "flip": lambda at, chunk: bytes([chunk[0] ^ 1]) + chunk[1:],
        "cut": lambda at, chunk: None,
        "swallow": lambda at, chunk: b"",
        "double": lambda at, chunk: chunk + chunk,
    }
    check_working(proxied)
    proxied.armed[way] = deeds[deed]
    looking = Attempt(proxied.peer.lookup, "nothing")
    error = looking.failure(zh.Error, timeout=2 * LOST_WITHIN)
    assert not isinstance(error, zh.TransferTimeout)
    assert not proxied.peer.alive
    proxied.armed[way] = nothing
    proxied.peer = proxied.ep.connect(proxied.address)
    check_working(proxied)


def test_control_traffic_is_not_readable(proxied):
    with pytest.raises(KeyError):
        proxied.peer["a most particular name"]
    sent = b"".join(proxied.proxy.recorded)
    assert len(sent) > 100
    assert b"particular" not in sent
    assert proxied.address[23:55] not in sent  # the secret


def test_a_recorded_connection_cannot_be_played_again(proxied):
    sent = b"".join(proxied.proxy.recorded)
    place = control_port(proxied.address, listening_ports(proxied.pid))
    for _ in range(3):
        with socket.create_connection(place) as stranger:
            stranger.settimeout(5)
            with suppress(ConnectionError):
                stranger.sendall(sent)
                while stranger.recv(4096):  # until it hangs up
                    pass
    alive, peer_id = proxied.keeper.peer()
    assert alive
    assert peer_id == proxied.ep.id
    check_working(proxied)


RAW = b"\xff\xfe a\nb\0\x1b[2J " + "\u202e\u2028é".encode()
SHOWN = r"\xff\xfe a\x0ab\x00\x1b[2J \xe2\x80\xae\xe2\x80\xa8é"
HOSTILE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]")


@pytest.fixture
def hostile(open_endpoint, monkeypatch):
    """An Endpoint that tells others this name."""
    with monkeypatch.context() as patch:
        patch.setattr("zerohop.endpoint._check_name", lambda name: None)
        return open_endpoint(name=RAW)


def check_text(text):
    assert SHOWN in text
    assert not HOSTILE.search(text), text


def test_a_name_that_is_no_text_is_shown_everywhere(hostile, open_endpoint):
    ep = open_endpoint(name="honest")
    with keeping() as logs:
        peer = ep.connect(hostile.address)
        assert peer.name == SHOWN
        assert hostile.accept(timeout=10).name == "honest"
        for text in (repr(peer), repr(ep.peers), repr(ep.stats()["connections"])):
            assert SHOWN.replace("\\", "\\\\") in text or SHOWN in text
        check_lines(prometheus(ep))
        check_text(reported_of(logs, "'honest' is connected"))
        hostile.close()
        until(lambda: not peer.alive, "it is gone", LOST_WITHIN)
        with pytest.raises(zh.PeerLost) as lost:
            peer.notify(1, 1)
        check_text(str(lost.value))
        check_text(reported_of(logs, "'honest' is no longer connected"))
    assert ep.stats()["connections"][0]["peer"] == SHOWN
    check_lines(prometheus(ep))


def reported_of(logs, begin):
    while True:
        sentence = logs.next_of("connection").getMessage()
        if sentence.startswith(begin):
            return sentence


def check_lines(page):
    lines = [line for line in page.splitlines() if 'peer="' in line]
    assert lines
    for line in lines:
        assert re.fullmatch(r'[a-z_]+\{([a-z]+="(\\.|[^"\\])*",?)+\} \S+', line), line


def test_an_endpoint_that_is_gone_is_named(hostile, open_endpoint):
    """Of the address alone, before anybody has said hello."""
    address = hostile.address
    hostile.close()
    with pytest.raises((zh.PeerLost, zh.TransferTimeout)) as failed:
        open_endpoint().connect(address, timeout=5)
    check_text(str(failed.value))
