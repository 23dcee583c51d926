"""Addresses: what opens a connection, and what does not."""

import random

import pytest
import zerohop as zh
from support.attempt import within
from support.forge import with_other_id, with_other_secret
from support.keeper import keep

BROKEN = (zh.ProtocolError, ValueError)


def test_every_truncation_and_every_changed_byte_is_refused_at_once(open_endpoint):
    address, ep = open_endpoint().address, open_endpoint()
    broken = [address[:length] for length in range(len(address))] + [address + b"\0"]
    for place in range(len(address)):
        changed = bytearray(address)
        changed[place] ^= 0x20
        broken.append(bytes(changed))
    with within(5):
        for each in broken:
            with pytest.raises(BROKEN, match="address"):
                ep.connect(each)


def test_what_is_no_address_is_refused(open_endpoint):
    ep = open_endpoint()
    for junk in (b"", b"\0" * 100, random.Random(0).randbytes(150), b"http://localhost"):
        with pytest.raises(BROKEN), within(1):
            ep.connect(junk)
    for thing in ("text", None, 5, ["a"]):
        with pytest.raises(TypeError):
            ep.connect(thing)


def refuse_strangers(ep, peer, link):
    link.meet("tried")
    with pytest.raises(zh.TransferTimeout):
        ep.accept(timeout=0.1)
    assert ep.peers == []
    link.meet("checked")
    assert ep.accept(timeout=10).alive
    link.meet("accepted")


@pytest.mark.parametrize("forge", [with_other_secret, with_other_id])
def test_a_wrong_secret_opens_nothing(thread, open_endpoint, forge):
    """The true address still works afterwards, and the refused one never shows up as a Peer."""
    ep = open_endpoint()
    with thread(refuse_strangers, connected=False) as s:
        with pytest.raises((zh.AuthenticationError, zh.ProtocolError)) as caught, within(5):
            ep.connect(forge(s.address), timeout=4)
        assert len(str(caught.value)) > 30
        assert ep.peers == []
        s.link.meet("tried")
        s.link.meet("checked")
        assert ep.connect(s.address).alive
        s.link.meet("accepted")


def test_many_wrong_secrets_do_no_harm(process, open_endpoint):
    ep = open_endpoint()
    with process(keep) as s:
        forged = with_other_secret(s.address)
        for _ in range(30):
            with pytest.raises(zh.AuthenticationError), within(5):
                ep.connect(forged, timeout=4)
        s.check()
