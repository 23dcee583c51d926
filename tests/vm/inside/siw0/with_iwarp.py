"""What Soft iWARP has of its own: how it is named and connected, and how it refuses."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import zerohop as zh
from support.link import until
from support.program import run_python
from support.refusals import CODES
from support.verbs_pair import make_side

DEVICE, ADDRESS = "siw0", "10.77.0.1"
NBYTES = 1 << 16
PAGE = 4096  # bytes


def run(*arguments: str) -> Any:
    done = run_python("-m", "zerohop", *arguments, seconds=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def couple() -> Iterator[tuple[zh.Endpoint, zh.Peer, zh.Endpoint]]:
    """An Endpoint, its Peer, and the Endpoint behind that."""
    with zh.Endpoint(DEVICE, p2p=0) as ours, zh.Endpoint(DEVICE, p2p=0) as theirs:
        yield ours, ours.connect(theirs.address), theirs


def test_rping_works() -> None:
    """The rig itself: the kernel's iWARP and librdmacm, without any of ours."""
    server = subprocess.Popen(["rping", "-s", "-P", "-a", ADDRESS])  # until it is killed
    try:

        def rings() -> bool:
            client = ["rping", "-c", "-a", ADDRESS, "-C", "3"]
            with suppress(subprocess.TimeoutExpired):  # siw may overlook its first message
                return subprocess.run(client, check=False, timeout=10).returncode == 0
            return False

        until(rings, "rping has its three answers", 60)
    finally:
        server.kill()
        server.wait(30)


def test_doctor_sees_the_device() -> None:
    report = json.loads(run("doctor", "--json", "--want", "host", "--verbs", DEVICE))
    assert report["works"]
    found = {finding["name"]: finding for finding in report["findings"]}
    for name in ("libibverbs", "providers", "uverbs", "transport", "ports"):
        assert found[name]["state"] == "ok", found[name]
    assert "siw0: iWARP, connected by rdma_cm" in found["transport"]["evidence"]
    assert "/dev/infiniband/rdma_cm" in found["uverbs"]["evidence"]
    assert "siw0/1 ACTIVE" in found["ports"]["evidence"]
    [trial] = report["trials"]
    assert (trial["route"], trial["state"]) == ("host", "ok")
    assert DEVICE in trial["evidence"]


def test_topo_names_it() -> None:
    assert "iWARP" in run("topo")


def test_the_route_names_it(couple) -> None:
    ours, peer, theirs = couple
    route = peer.route(ours.register(np.ones(9)), theirs.register(np.ones(9)).remote)
    assert (route.kind, route.device) == ("host", DEVICE)
    assert route.settings["gid_kind"] == "iWARP"
    assert route.settings["gid"] == route.settings["remote_gid"] == f"::ffff:{ADDRESS}"


def test_an_endpoint_without_a_wish_takes_it(monkeypatch) -> None:
    monkeypatch.delenv("ZEROHOP_DEVICE", raising=False)
    with zh.Endpoint(p2p=0) as ours, zh.Endpoint(p2p=0) as theirs:
        peer = ours.connect(theirs.address)
        route = peer.route(ours.register(np.ones(9)), theirs.register(np.ones(9)).remote)
        assert route.device == DEVICE
        assert "it is the first adapter that can serve (iWARP)" in str(route)


def test_atomics_are_refused_with_the_remedy(couple) -> None:
    _, peer, theirs = couple
    word = theirs.register(np.zeros(1, np.int64)).remote
    for call in (lambda: peer.fetch_add(word[0], 1), lambda: peer.compare_swap(word[0], 0, 1)):
        with pytest.raises(zh.RouteUnavailable, match=r"siw0 has none .*; use another device"):
            call()


def test_raw_queue_pairs_are_refused_with_the_remedy() -> None:
    queue_pair = make_side(zh.verbs.Device(DEVICE)).qp
    with pytest.raises(zh.VerbsError, match=r"connected by rdma_cm.*use zh.Endpoint"):
        queue_pair.connect(queue_pair.address())


def test_what_is_refused_is_not_written_and_the_peer_goes_on(couple) -> None:
    ours, peer, theirs = couple
    source = ours.register(np.ones(NBYTES, np.uint8))
    closed = np.zeros(NBYTES, np.uint8)
    memory = theirs.register(closed)
    far = memory.remote
    kept = theirs.register(np.zeros(NBYTES, np.uint8))
    memory.close()
    for call in (lambda: peer.write(source, far, notify=(1, 1)), lambda: peer.read(far, source)):
        with pytest.raises(zh.VerbsError, match="iWARP") as caught:
            call().wait()
        assert caught.value.code in CODES
        peer.write(source, kept.remote, notify=(2, 2)).wait()
        assert theirs.wait_notify(2) == 2
    assert (closed == 0).all()
    assert theirs.peek_notify(1) == 0
    assert peer.alive


def test_a_write_that_is_done_has_arrived(couple) -> None:
    """Its own completion would tell only that TCP has the bytes."""
    _, peer, theirs = couple
    seen = np.zeros(NBYTES, np.uint8)
    inbox = theirs.register(seen)
    for value in range(1, 100):
        peer.write(np.full(NBYTES, value, np.uint8), inbox.remote).wait()
        assert (seen == value).all()


def test_a_few_bytes_on_two_pages_are_moved_whole(couple) -> None:
    """siw answers a read of at most 32 bytes on two pages with wrong ones: each page is read by itself."""
    ours, peer, theirs = couple
    there = np.random.default_rng(9).integers(1, 256, 3 * PAGE, np.uint8)
    here = np.zeros_like(there)
    inbox, memory = theirs.register(there), ours.register(here)
    far = inbox.remote
    end = PAGE - there.ctypes.data % PAGE  # of the page it begins on
    for nbytes in (2, 3, 12, 31, 32, 33, 40):
        for before in {1, nbytes // 2, nbytes - 1}:
            begin = end - before
            chosen = slice(begin, begin + nbytes)
            peer.read(far[chosen], memory[:nbytes]).wait()
            assert (here[:nbytes] == there[chosen]).all(), (nbytes, before)
            peer.read_many([(far[chosen], memory[PAGE : PAGE + nbytes])]).wait()
            assert (here[PAGE : PAGE + nbytes] == there[chosen]).all(), (nbytes, before)
            peer.write(memory[:nbytes], far[end + 100 : end + 100 + nbytes]).wait()
            assert (there[end + 100 : end + 100 + nbytes] == there[chosen]).all(), (nbytes, before)


def device_descriptors() -> int:
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sum("infiniband" in os.readlink(link) for link in links if os.path.lexists(link))


def test_closing_lets_go_of_the_device_whatever_is_kept() -> None:
    before = device_descriptors()
    with zh.Endpoint(DEVICE) as a, zh.Endpoint(DEVICE) as b:
        kept = [a.connect(b.address), b.accept(), a.register(np.ones(9))]
        kept.append(kept[0].write(kept[2], b.register(np.zeros(9)).remote))
        assert device_descriptors() > before
    until(lambda: device_descriptors() <= before, "the device is let go of")
    assert len(kept) == 4
