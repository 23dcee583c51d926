"""The model of `zerohop scale` beside what Peers on soft0 take, by counts: descriptors and registered bytes exactly,
memory within a quarter."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zerohop as zh
from support.hub import FIRST, messages
from support.patience import patient
from zerohop.scale import Job, weigh

TESTS = Path(__file__).parents[1]
SENDS = 16  # buffers
SMALL = {"message_slots": 4, "message_bytes": 1024, "send_depth": 32}
HEAPS = 8  # that the allocator may have come to need meanwhile
USUAL = {"message_slots": 32, "message_bytes": 16384, "send_depth": 256}


def echo(ep: zh.Endpoint, count: int, nbytes: int) -> None:
    peer, sink = ep.accept(60.0), np.zeros(nbytes, np.uint8)
    for _ in range(count):
        peer.recv(sink, tag=1).wait()
        peer.send(sink, tag=2).wait()


def measured(options: dict[str, Any], count: int, *, used: bool) -> dict[str, Any]:
    """What a fresh process counts: this one has had others."""
    others = [zh.Endpoint("soft0", p2p=0, timeout=60.0) for _ in range(count)]
    for each in others:
        each.share("here", each.empty(1))
    echoes = [
        threading.Thread(target=echo, args=(each, messages(options), options["message_bytes"]))
        for each in others
    ]
    for thread in echoes if used else []:
        thread.start()
    given = {"options": options, "addresses": [each.address.hex() for each in others], "used": used}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "support.hub"],
            input=json.dumps(given) + "\n",
            capture_output=True,
            check=False,
            cwd=TESTS,
            text=True,
            timeout=patient(50),
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    finally:
        for thread in echoes if used else []:
            thread.join(patient(10))
        for each in others:
            each.close()


@pytest.mark.parametrize("options", [USUAL, SMALL], ids=["usual", "small"])
@pytest.mark.parametrize(
    ("peers", "used"), [(10, False), (200, False), (50, True)], ids=["few", "idle", "used"]
)
def test_the_model_is_what_is_measured(options, peers, used):
    compare(options, peers, used=used)


def compare(options: dict[str, Any], peers: int, *, used: bool) -> None:
    """With so many Peers beyond the first few."""
    seen = measured(options, peers + FIRST, used=used)
    none, all_ = (weigh(Job(n + FIRST + 1, on="soft0", **options)) for n in (0, peers))
    assert seen["peers"] == peers
    assert seen["fds"] == all_.descriptors - none.descriptors
    sends = 0 if used else SENDS * (40 + options["message_bytes"])  # come with the first message
    assert seen["registered_nbytes"] == all_.registered_nbytes - sends
    assert seen["maps"] <= all_.maps - none.maps + HEAPS
    assert seen["threads"] == seen["locked_nbytes"] == 0
    field = "resident_nbytes" if used else "idle_nbytes"
    modelled = getattr(all_, field) - getattr(none, field)
    # The allocator takes and gives back pages by the 128 KiB (man mallopt, M_TOP_PAD), so few Peers say little.
    assert seen["nbytes"] == pytest.approx(modelled, rel=0.25, abs=512 << 10)
