"""Guarantee 5: the route taken is the route reported, and one can demand it."""

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.keeper import keep


def test_the_route_is_known_before_and_after(remote, kind, p2p, by_device):
    with remote(keep) as s:
        memory, _ = array(s.ep, kind, np.zeros(10))
        far = s.keeper.array(kind, np.zeros(10)).remote
        route = s.peer.route(memory, far)
        assert route.kind == ("p2p" if p2p else by_device)
        assert route.device == (memory.device if p2p else s.ep.device)
        assert len(route.reason) > 15
        assert route.kind in str(route)
        assert route.device in str(route)
        for transfer in (
            s.peer.write(memory, far),
            s.peer.read(far, memory),
            s.peer.write_many([(memory, far)]),
            s.peer.write(memory, far, require=route.kind),
        ):
            transfer.wait()
            assert transfer.route.kind == route.kind
            assert transfer.route.device == route.device


@pytest.mark.parametrize("wanted", ["gpudirect", "of other memory", "the other"])
def test_a_route_that_is_not_there_is_refused_with_the_reason(remote, wanted, p2p, by_device):
    if wanted == "of other memory":
        wanted = "host" if by_device == "staged" else "staged"
    if wanted == "the other":
        wanted = "gpudirect" if p2p else "p2p"
    with remote(keep) as s:
        memory, _ = array(s.ep, "numpy", np.ones(10))
        target = s.keeper.array("numpy", np.zeros(10))
        calls = [
            lambda: s.peer.write(memory, target.remote, require=wanted),
            lambda: s.peer.write_many([(memory, target.remote)], require=wanted),
            lambda: s.peer.read(target.remote, memory, require=wanted),
        ]
        if wanted != "host":  # a notification alone has that route everywhere
            calls.append(lambda: s.peer.write_many([], notify=(1, 1), require=wanted))
        for call in calls:
            with pytest.raises(zh.RouteUnavailable, match=wanted) as caught:
                call()
            assert caught.value.effect == "nothing"
            assert len(str(caught.value)) > 40
            assert "host" in str(caught.value)
        assert not target.show().any()
        s.peer.write(memory, target.remote).wait()
        assert target.show().all()


def test_an_unknown_route_is_a_mistake_of_the_caller(thread):
    with thread(keep) as s:
        memory, _ = array(s.ep, "numpy", np.ones(10))
        far = s.keeper.array("numpy", np.zeros(10)).remote
        with pytest.raises((ValueError, zh.RouteUnavailable), match="warp"):
            s.peer.write(memory, far, require="warp")


def test_the_device_is_the_one_asked_for(device):
    with zh.Endpoint(device) as ep:
        assert ep.device == device
    with pytest.raises((zh.Error, ValueError), match="nosuch0") as caught:
        zh.Endpoint("nosuch0")
    assert device in str(caught.value)  # it names the devices that exist


def test_memory_that_a_device_cannot_serve_is_refused_at_once(open_endpoint):
    with pytest.raises((zh.Error, ValueError), match="cuda:77"):
        open_endpoint().empty(10, device="cuda:77")
    for name in ("cuda", "cuda:", "cuda:-1", "rocm:0", "gpu"):
        with pytest.raises(ValueError, match="unknown"):
            open_endpoint().empty(10, device=name)
