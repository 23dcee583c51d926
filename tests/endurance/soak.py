"""Random operations for a long time, with peers that die and come again; what is held stays flat."""

import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import zerohop as zh
from support.link import Link
from support.partner import Partners
from support.session import Remote, Session

from endurance.counts import Counts, counts, settled

WORDS = 1 << 17  # of 8 bytes, that the two sides share
LIFE = 400  # operations with one peer, about; then it is killed or leaves
GROWTH = 32 << 20  # bytes in RAM that may come with time: caches and fragments of the allocator
PATIENCE = 60.0


def rows(partners: Partners, seconds: float, seed: int) -> Iterator[dict[str, Any]]:
    for p2p in (False, True):
        os.environ["ZEROHOP_P2P"] = str(int(p2p))
        yield soak(partners, seconds, seed) | {"route": "p2p" if p2p else "soft0"}


def echo(ep: zh.Endpoint, peer: zh.Peer, link: Link) -> None:
    """Shares words, sends back what is sent to it, and notifies who notifies it."""
    words = ep.empty(WORDS, "uint64")
    np.asarray(words)[:] = 0
    ep.share("words", words)
    sink = ep.empty(1 << 16)
    while True:
        order = link.recv(PATIENCE)
        if order == "end":
            return
        if order == "notify":
            peer.notify(3, ep.wait_notify(2)).wait()
        else:
            peer.recv(sink[:order], tag=1).wait()
            peer.send(sink[:order], tag=2).wait()


class Dialogue:
    """Operations with one peer, each beside a model of what its memory holds."""

    def __init__(self, session: Session, dice: random.Random) -> None:
        self._ep, self._peer, self._link = session.ep, session.peer, session.link
        self._dice = dice
        self._far = self._peer.lookup("words")
        self._model = np.zeros(WORDS, np.uint64)

    def operate(self) -> None:
        dice = self._dice.choice
        dice(
            (self.write, self.read, self.scattered, self.add, self.swap, self.converse, self.notify)
        )()

    def _range(self, most: int = 1 << 14) -> slice:
        count = self._dice.randrange(1, most)
        first = self._dice.randrange(WORDS - count)
        return slice(first, first + count)

    def _values(self, place: slice) -> np.ndarray:
        return np.arange(place.stop - place.start, dtype=np.uint64) + self._dice.getrandbits(60)

    def write(self) -> None:
        place = self._range()
        values = self._values(place)
        self._peer.write(values, self._far[place]).wait()
        self._model[place] = values

    def read(self) -> None:
        place = self._range()
        sink = np.zeros(place.stop - place.start, np.uint64)
        self._peer.read(self._far[place], sink).wait()
        np.testing.assert_array_equal(sink, self._model[place])

    def scattered(self) -> None:
        starts = sorted(self._dice.sample(range(0, WORDS, 256), self._dice.randrange(1, 64)))
        places = [slice(start, start + 256) for start in starts]
        values = [self._values(place) for place in places]
        pairs = [(each, self._far[place]) for each, place in zip(values, places, strict=True)]
        self._peer.write_many(pairs).wait()
        for each, place in zip(values, places, strict=True):
            self._model[place] = each

    def add(self) -> None:
        word, more = self._dice.randrange(WORDS), self._dice.getrandbits(40)
        old = self._peer.fetch_add(self._far[word], more).wait()
        assert old == int(self._model[word])
        self._model[word] += np.uint64(more)

    def swap(self) -> None:
        word, new = self._dice.randrange(WORDS), self._dice.getrandbits(40)
        expected = int(self._model[word]) if self._dice.random() < 0.5 else 1
        old = self._peer.compare_swap(self._far[word], expected, new).wait()
        assert old == int(self._model[word])
        if old == expected:
            self._model[word] = new

    def converse(self) -> None:
        nbytes = self._dice.randrange(1, 1 << 16)
        values = np.frombuffer(self._dice.randbytes(nbytes), np.uint8).copy()
        sink = np.zeros(nbytes, np.uint8)
        answer = self._peer.recv(sink, tag=2)
        self._link.send(nbytes)
        self._peer.send(values, tag=1).wait()
        answer.wait()
        np.testing.assert_array_equal(sink, values)

    def notify(self) -> None:
        value = self._dice.randrange(1, 1 << 32)
        self._link.send("notify")
        self._peer.notify(2, value).wait()
        assert self._ep.wait_notify(3) == value


def soak(partners: Partners, seconds: float, seed: int) -> dict[str, Any]:
    dice = random.Random(seed)
    remote = Remote(partners, "process", "soft0")
    operations = killed = lives = 0
    flat: Counts | None = None  # what there is once everything has been done before
    end = time.monotonic() + seconds
    with zh.Endpoint("soft0", name="soak", timeout=PATIENCE) as ep:
        while time.monotonic() < end:
            with remote(echo, endpoint=ep, deadline=PATIENCE, timeout=PATIENCE) as session:
                dialogue = Dialogue(session, dice)
                for _ in range(dice.randrange(1, 2 * LIFE)):
                    dialogue.operate()
                    operations += 1
                if dice.random() < 0.5:
                    killed += 1
                    _kill(session, dialogue)
                else:
                    session.link.send("end")
                del dialogue  # its arrays
            lives += 1
            if lives == 10:
                flat = settled(counts(), 0.0)
        assert flat is not None, "too short: fewer than ten peers came and went"
        left = settled(flat).beyond(flat)
    return {
        "what": "soak",
        "seconds": seconds,
        "seed": seed,
        "operations": operations,
        "peers": lives,
        "killed": killed,
        "left": left,
        "holds": left["fds"] <= 2 and left["threads"] <= 0 and left["nbytes"] < GROWTH,
    }


def _kill(session: Session, dialogue: Dialogue) -> None:
    """While bytes flow: some operation after it says that the peer is lost."""
    session.signal(signal.SIGKILL)
    for _ in range(1000):
        try:
            dialogue.write()
            dialogue.add()
        except zh.PeerLost:
            return
    raise AssertionError("a peer that was killed is not lost after 1000 operations")
