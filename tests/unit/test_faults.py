"""zh.Faults as a value: its words, from keywords, text and the environment."""

import logging
import re
from contextlib import suppress

import pytest
import zerohop as zh
from support.link import until


def test_keywords_and_text_say_the_same():
    faults = zh.Faults(seed=7, drop=0.01, delay=0.002, fail=3, fail_status=12)
    assert faults == zh.Faults.parse("seed=7, drop=0.01, delay=2ms, fail=3, fail_status=12")
    assert faults.fail_status == "RETRY_EXC_ERR"
    assert str(faults) == "seed=7,drop=0.01,delay=0.002,fail=3,fail_status=RETRY_EXC_ERR"
    assert zh.Faults.parse(str(faults)) == faults
    assert str(zh.Faults()) == ""
    assert zh.Faults.parse("slow=50us").slow == pytest.approx(50e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drip=1", "there is no 'drip': known are seed, drop, .*, max_mr$"),
        ("drop", "'drop' lacks a value"),
        ("drop=2", "drop=2 is not a probability from 0 to 1"),
        ("delay=2 weeks", "delay=2 weeks is not a time from 0 to 1 hour"),
        ("fail=first", "fail=first is not an integer"),
        ("fail_status=BAD", "fail_status=BAD is not the status of a failed completion"),
        ("seed=1,,drop=1", "there is no ''"),
    ],
)
def test_wrong_words_are_named(text, message, monkeypatch):
    with pytest.raises(ValueError, match=message):
        zh.Faults.parse(text)
    with pytest.raises(ValueError, match=message):
        zh.Endpoint("soft0", faults=text)
    monkeypatch.setenv("ZEROHOP_FAULTS", text)
    with pytest.raises(ValueError, match="ZEROHOP_FAULTS=.*" + message):
        zh.Endpoint("soft0")


def test_the_environment_gives_them_where_the_call_does_not(monkeypatch):
    monkeypatch.setenv("ZEROHOP_FAULTS", "seed=7,duplicate=1")
    with zh.Endpoint("soft0") as ep, zh.Endpoint("soft0", faults="seed=8") as other:
        assert ep.faults == zh.Faults(seed=7, duplicate=1)
        assert other.faults == zh.Faults(seed=8)
        assert ep.stats()["faults"] == {}  # none has happened
        ep.set_faults(None)
        assert ep.faults is None
        assert ep.stats()["faults"] == {}


def test_p2p_is_off_unless_it_is_asked_for(monkeypatch):
    def route(**keywords: object) -> zh.Route:
        with zh.Endpoint("soft0", **keywords) as a, zh.Endpoint("soft0") as b:
            here, there = a.empty(8), b.empty(8)
            return a.connect(b.address).route(here, there.remote)

    assert route().kind == "p2p"
    faulty = route(faults="seed=1,slow=1us")
    assert faulty.kind == "host"
    assert "injects faults, for which p2p=0 is the default" in str(faulty)
    assert route(faults="seed=1,slow=1us", p2p=1).kind == "p2p"
    monkeypatch.setenv("ZEROHOP_P2P", "1")
    assert route(faults="seed=1,slow=1us").kind == "p2p"


def until_logged(caplog: pytest.LogCaptureFixture, word: str) -> str:
    """The first sentence with that word; they come by a thread."""
    return until(
        lambda: next((text for text in caplog.messages if text.startswith(word)), ""),
        f"{word} is reported",
    )


def test_what_happens_is_counted_and_reported(caplog):
    caplog.set_level(logging.DEBUG, "zerohop.faults")
    with zh.Endpoint("soft0", faults="duplicate=1") as a, zh.Endpoint("soft0", p2p=0) as b:
        peer, counter = a.connect(b.address), b.empty(1, "int64")
        assert [peer.fetch_add(counter.remote[0], 1).wait() for _ in range(20)] == [*range(20)]
        assert a.stats()["faults"]["duplicate"] >= 20
        until(lambda: b.stats()["faults"]["duplicate_found"] >= 20, "copies are found")
        reported = until_logged(caplog, "duplicate")
    assert a.stats()["faults"]["duplicate"] >= 20  # also once closed
    assert re.fullmatch(
        r"duplicate on queue pair 0 \(number \d+\): request \d+, packet 0, try 0", reported
    )


def test_the_same_calls_meet_the_same_faults():
    def lost(seed: int) -> int:
        faults = zh.Faults(seed=seed, drop=0.3)
        with zh.Endpoint("soft0", faults=faults, ack_timeout=8) as a, zh.Endpoint("soft0") as b:
            peer, there = a.connect(b.address), b.empty(100)
            near = a.empty(100)
            for _ in range(50):
                peer.read(there.remote, near).wait()
            return int(a.stats()["faults"]["drop"])

    assert lost(1) == lost(1)
    assert len({lost(seed) for seed in range(1, 5)}) > 1


def test_the_failure_that_was_asked_for_is_the_one_that_comes():
    with zh.Endpoint("soft0", p2p=0) as a, zh.Endpoint("soft0") as b:
        peer, there = a.connect(b.address), b.empty(100)
        near = a.empty(100)
        peer.write(near, there.remote).wait()
        a.set_faults(zh.Faults(fail=1, fail_status="REM_OP_ERR"))
        with pytest.raises(zh.VerbsError, match="REM_OP_ERR") as caught:
            peer.write(near, there.remote).wait()
        assert caught.value.code == 11
        a.set_faults(None)
        peer.write(near, there.remote).wait()  # on a new queue pair


@pytest.mark.filterwarnings("ignore:.*DEVICE_FATAL:RuntimeWarning")
def test_a_device_can_be_unplugged():
    with zh.Endpoint("soft0", p2p=0) as a, zh.Endpoint("soft0") as b:
        peer, there = a.connect(b.address), b.empty(100)
        near = a.empty(100)
        a.set_faults("remove=1")
        with suppress(zh.PeerLost):  # it may be done before that
            peer.write(near, there.remote).wait()
        until(lambda: not peer.alive, "the device is gone")
        with pytest.raises(zh.PeerLost, match="DEVICE_FATAL"):
            peer.write(near, there.remote)
        assert [event["type"] for event in a.device_events] == ["DEVICE_FATAL"]
        with pytest.raises(zh.VerbsError, match="DEVICE_FATAL"):
            a.connect(b.address)


def test_refusals_of_a_device_with_limits_are_counted():
    with zh.Endpoint("soft0", faults="max_mr=1") as ep:
        kept = ep.empty(8)
        with pytest.raises(zh.Error, match="max_mr 1"):
            ep.empty(8)
        kept.close()
        assert ep.stats()["faults"] == {"max_mr": 1}
    with (
        zh.Endpoint("soft0", p2p=0) as ep,
        zh.Endpoint("soft0") as first,
        zh.Endpoint("soft0") as more,
    ):
        ep.connect(first.address)
        ep.set_faults("max_qp=1")
        with pytest.raises(zh.Error, match="max_qp 1"):
            ep.connect(more.address)
        assert ep.stats()["faults"]["max_qp"] >= 1
