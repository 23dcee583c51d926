"""An Endpoint on several devices: large transfers over all of them, the rest over one."""

import os

import numpy as np
import pytest
import zerohop as zh

# Two that reach each other; on adapters, those that are named from outside.
RAILS = os.environ.get("ZEROHOP_TEST_RAILS", "soft0,soft0@127.0.0.2").split(",")


@pytest.fixture
def pair():
    with zh.Endpoint(RAILS, stripe_bytes=8192, p2p=0) as a, zh.Endpoint(",".join(RAILS)) as b:
        to_b = a.connect(b.address)
        yield a, b, to_b, b.accept()


def sent(peer):
    return [rail["bytes_out"] for rail in peer.stats()["rails"]]


def test_large_transfers_take_equal_shares(pair):
    a, b, to_b, _ = pair
    source = a.register(np.arange(100_000))
    target = b.empty((100_000,), "int64")
    to_b.write(source, target.remote, notify=(1, 7)).wait()
    assert b.wait_notify(1) == 7
    np.testing.assert_array_equal(np.asarray(target), np.arange(100_000))
    first, second = sent(to_b)
    assert first + second == 800_000
    assert abs(first - second) <= 8192
    assert to_b.stats()["bytes_out"] == 800_000


def test_strided_arrays_and_lists_are_shared_too(pair):
    a, b, to_b, _ = pair
    numbers = np.arange(60_000.0).reshape(300, 200)
    source, target = a.register(numbers), b.empty((300, 200), "float64")
    to_b.write(source[:, ::3], target.remote[:, ::3]).wait()
    expected = np.zeros_like(numbers)
    expected[:, ::3] = numbers[:, ::3]
    np.testing.assert_array_equal(np.asarray(target), expected)
    to_b.write_many([(source[i], target.remote[i]) for i in range(300)]).wait()
    np.testing.assert_array_equal(np.asarray(target), numbers)
    back = a.empty((300, 200), "float64")
    to_b.read(target.remote, back).wait()
    np.testing.assert_array_equal(np.asarray(back), numbers)
    assert min(sent(to_b)) > 0


def test_up_to_stripe_bytes_take_one(pair):
    a, b, to_b, _ = pair
    target = b.empty((8192,))
    to_b.write(a.empty((8192,)), target.remote).wait()
    assert sorted(sent(to_b)) == [0, 8192]


def test_route_and_stats_tell_which_rails_serve(pair):
    a, b, to_b, _ = pair
    big, small = b.empty((100_000,)), b.empty((10,))
    route = to_b.route(a.empty((100_000,)), big.remote)
    assert route.device == ",".join(RAILS) == a.device
    assert route.settings["stripe_bytes"] == 8192
    for rail, name in zip(route.settings["rails"], RAILS, strict=True):
        assert rail["device"] == name
        assert {"mtu", "gid", "remote_gid", "rd_atomic_out", "send_depth"} <= rail.keys()
    assert to_b.route(a.empty((10,)), small.remote).device == RAILS[0]
    assert [rail["device"] for rail in to_b.stats()["rails"]] == RAILS
    assert all(rail["serves"] and not rail["trouble"] for rail in to_b.stats()["rails"])


def test_devices_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("ZEROHOP_DEVICE", ", ".join(RAILS))
    monkeypatch.setenv("ZEROHOP_STRIPE_BYTES", "123456")
    with zh.Endpoint() as a, zh.Endpoint() as b:
        assert a.device == ",".join(RAILS)
        memory, far = a.empty((8,)), b.empty((8,)).remote
        assert a.connect(b.address).route(memory, far).settings["stripe_bytes"] == 123456


@pytest.mark.parametrize(
    ("devices", "error", "text"),
    [
        (["soft0", "soft0"], ValueError, "named twice"),
        ("soft0,soft0@127.0.0.1", ValueError, "named twice"),
        ([], ValueError, "names no device"),
        ("soft0,", ValueError, "has a comma with no device beside it"),
        ("soft0, ,soft0@127.0.0.2", ValueError, "has a comma with no device beside it"),
        (["soft0", "a,b"], ValueError, "is not the name of a device"),
        (["soft0", 3], TypeError, "must be a str, not int"),
        ([f"soft0@127.0.0.{i}" for i in range(2, 11)], ValueError, "9 devices are too many"),
        ("soft0,nothing9", zh.VerbsError, "nothing9"),
    ],
)
def test_devices_that_cannot_be_rails(devices, error, text):
    with pytest.raises(error, match=text):
        zh.Endpoint(devices)


@pytest.mark.parametrize(("ours", "theirs"), [(RAILS[0], RAILS), (RAILS, RAILS[0])])
def test_ends_with_different_numbers_of_devices_use_what_both_have(ours, theirs):
    with zh.Endpoint(ours, p2p=0) as a, zh.Endpoint(theirs, p2p=0) as b:
        to_b = a.connect(b.address)
        to_a = b.accept()
        for here, there, peer in ((a, b, to_b), (b, a, to_a)):
            target, counter = there.empty((4 << 20,)), there.empty((1,), "int64")
            there.share("target", target)
            there.share("counter", counter)
            source = np.random.default_rng(3).integers(0, 256, 4 << 20, np.uint8)
            peer.write(here.register(source), peer["target"], notify=(1, 7)).wait()
            assert there.wait_notify(1) == 7
            np.testing.assert_array_equal(np.asarray(target), source)
            assert peer.fetch_add(peer["counter"][0], 5).wait() == 0
            sending = peer.send(here.register(source), tag=2)
            back = {id(to_b): to_a, id(to_a): to_b}[id(peer)]
            assert back.recv(target, tag=2).wait() == 4 << 20
            sending.wait()
