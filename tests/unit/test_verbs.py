"""The raw verbs objects on soft0: devices, memory regions, states, addresses, events."""

import gc
import pickle
import time
import weakref

import numpy as np
import pytest
import zerohop as zh
from support.verbs_pair import DEADLINE, connect, make_side, take, take_error
from zerohop import verbs
from zerohop.verbs import Access


@pytest.fixture(scope="module")
def device():
    return verbs.Device("soft0")


@pytest.fixture
def pair(device):
    return connect(make_side(device), make_side(device))


def test_unknown_device_is_refused():
    with pytest.raises(zh.VerbsError, match=r"no_such_device|libibverbs"):
        verbs.Device("no_such_device")


def test_device_describes_itself(device):
    assert device.name == "soft0"
    assert device.provider == "softhca"
    assert device.state == "ACTIVE"
    assert device.mtu in (256, 512, 1024, 2048, 4096)
    assert device.attributes["max_qp_wr"] >= 256
    assert device.port_attributes["max_msg_sz"] >= 1 << 30
    assert device.gid.count(":") >= 2
    assert "soft0" in repr(device)
    assert "ACTIVE" in repr(device)


def test_parents_live_as_long_as_their_children():
    def make() -> tuple[verbs.CompletionQueue, verbs.QueuePair]:
        device = verbs.Device("soft0")
        cq = verbs.CompletionQueue(device, 8)
        return cq, verbs.QueuePair(device.pd(), cq)

    cq, qp = make()
    gc.collect()
    assert qp.state == "RESET"
    assert cq.poll() == []


def test_region_keeps_its_array_alive(device):
    array = np.ones(64, np.uint8)
    gone = weakref.ref(array)
    mr = device.pd().register(array)
    del array
    gc.collect()
    assert gone() is not None
    mr.close()
    gc.collect()
    assert gone() is None


def test_read_only_array_is_registered_for_reading_only(device):
    mr = device.pd().register(b"constant")
    assert mr.access == Access.REMOTE_READ
    with pytest.raises(BufferError, match="read-only"):
        device.pd().register(b"constant", access=Access.LOCAL_WRITE | Access.REMOTE_WRITE)


def test_bad_registrations_are_refused(device):
    with pytest.raises(zh.RegistrationError, match="0 bytes"):
        device.pd().register(np.empty(0, np.uint8))
    with pytest.raises(zh.RegistrationError, match="LOCAL_WRITE"):
        device.pd().register(np.zeros(8, np.uint8), access=Access.REMOTE_WRITE)


def test_closed_region_is_refused(pair):
    here, there = pair
    here.mr.close()
    assert here.mr.closed
    with pytest.raises(ValueError, match="closed"):
        here.qp.post_send("write", here.mr, remote=there.mr.remote)


def test_states(device):
    here, there = make_side(device), make_side(device)
    states = [here.qp.state]
    for step in (
        here.qp.init,
        lambda: here.qp.rtr(there.qp.address()),
        lambda: here.qp.rts(there.qp.address()),
        here.qp.error,
        here.qp.reset,
    ):
        step()
        states.append(here.qp.state)
    assert states == ["RESET", "INIT", "RTR", "RTS", "ERR", "RESET"]
    assert repr(here.qp) == f"<QueuePair {here.qp.number:#x} on soft0: RESET>"


def test_illegal_transition_is_explained(device):
    here, there = make_side(device), make_side(device)
    with pytest.raises(zh.VerbsError, match="is in state RESET: go through RESET, INIT"):
        here.qp.rtr(there.qp.address())
    here.qp.init()
    with pytest.raises(zh.VerbsError, match="is in state INIT"):
        here.qp.rts(there.qp.address())


def test_queue_pair_works_again_after_reset(pair):
    here, there = pair
    here.qp.post_send("write", here.mr[0:8], remote=(there.mr.address, there.mr.rkey ^ 1))
    take_error(here)
    for side in pair:
        side.qp.reset()
        while side.cq.poll():
            pass
    connect(here, there)
    here.qp.post_send("write", here.mr[0:8], remote=there.mr.remote)
    assert take(here.cq)[0].ok
    assert np.array_equal(there.array[:8], here.array[:8])


def test_address_travels(pair):
    address = pair[0].qp.address()
    copy = verbs.QueuePairAddress.from_bytes(address.to_bytes())
    assert copy == address == pickle.loads(pickle.dumps(address))
    assert hash(copy) == hash(address)
    assert copy != pair[1].qp.address()
    assert (copy.number, copy.psn, copy.gid) == (address.number, address.psn, address.gid)
    assert copy.mtu == address.mtu
    with pytest.raises(zh.ProtocolError, match="bytes"):
        verbs.QueuePairAddress.from_bytes(address.to_bytes()[:-1])


def test_wait_is_bounded(device):
    cq = verbs.CompletionQueue(device, 8)
    cq.arm()
    begin = time.monotonic()
    assert not cq.wait(timeout=0.05)
    assert time.monotonic() - begin >= 0.05
    assert device.async_event(timeout=0.01) is None
    with pytest.raises(ValueError, match="timeout"):
        cq.wait(timeout=-1)


def test_async_event_names_the_queue_pair(pair, device):
    here, there = pair
    here.qp.post_send("write", here.mr[0:8], remote=(there.mr.address, there.mr.rkey ^ 1))
    take_error(here)
    events = []
    while not any(e.qp_num == there.qp.number for e in events):
        event = device.async_event(timeout=DEADLINE)
        assert event is not None, f"only {events} came"
        events.append(event)
    assert events[-1].type == "QP_ACCESS_ERR"
    assert "no right" in events[-1].help
    assert repr(events[-1]) == f"<AsyncEvent QP_ACCESS_ERR qp_num={there.qp.number:#x}>"
