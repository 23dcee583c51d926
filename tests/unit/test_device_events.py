"""What a device says by itself is kept where a program can read it."""

import time

import numpy as np
import pytest
import zerohop as zh
from support.forge import forge
from support.link import until

DEADLINE = 20.0  # seconds: for what must happen


def test_an_event_names_its_peer_and_the_remedy():
    with (
        zh.Endpoint("soft0", name="here", timeout=DEADLINE) as here,
        zh.Endpoint("soft0", name="there", timeout=DEADLINE) as there,
    ):
        peer = here.connect(there.address)
        inbox = there.empty(64)
        assert there.device_events == []
        before = time.time()
        with pytest.raises(zh.VerbsError):
            peer.write(np.ones(64, np.uint8), forge(inbox.remote, rkey=0x5A5A5A5A)).wait()
        [event] = until(lambda: there.device_events, "the event is reported", DEADLINE)
        assert before - 1 <= event["time"] <= time.time() + 1
        assert {"device": "soft0", "type": "QP_ACCESS_ERR", "port": 0, "peer": "here"}.items() <= (
            event.items()
        )
        assert "with peer 'here'" in event["message"]
        assert "no right" in event["message"]
    assert there.device_events == []
