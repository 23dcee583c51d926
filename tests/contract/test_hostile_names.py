"""A peer whose name is no text, or text that drives a terminal: it is shown in one line of UTF-8, wherever it is."""

import re

import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN
from support.kept_logs import keeping
from support.link import until
from zerohop.observe.metrics import prometheus

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
        check_text(told_of(logs, "'honest' is connected"))
        hostile.close()
        until(lambda: not peer.alive, "it is gone", LOST_WITHIN)
        with pytest.raises(zh.PeerLost) as lost:
            peer.notify(1, 1)
        check_text(str(lost.value))
        check_text(told_of(logs, "'honest' is no longer connected"))
    assert ep.stats()["connections"][0]["peer"] == SHOWN
    check_lines(prometheus(ep))


def told_of(logs, begin):
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
