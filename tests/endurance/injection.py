"""Each fault at each operation: what went wrong on purpose, and whether every call reported the truth."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import zerohop as zh
from support.keeper import Keeper, Kept, keep
from support.partner import Partners
from support.session import Remote, Session

WORDS = 40_000  # of 8 bytes: some packets of 64 KiB
RECOVERS_WITHIN = 20.0  # seconds
OPTIONS = {"timeout": 10.0, "ack_timeout": 8, "min_rnr_timer": 1}  # 1 ms for a lost packet
FAULTS = {
    "drop": "drop=0.2",
    "duplicate": "duplicate=0.5",
    "corrupt": "corrupt=0.2",
    "cut": "cut=0.05",
    "partial": "partial=0.05",
    "delay": "delay=1ms,delay_rate=0.3",
    "slow": "slow=500us",
    "fail": "fail=1,fail_status=REM_OP_ERR",
}


def check(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


class Ends:
    """This side's arrays, and what the keeper's words must be."""

    def __init__(self, session: Session) -> None:
        self.session, self.peer = session, session.peer
        self.kept: Kept = Keeper(session.link).array("numpy", np.zeros(WORDS, np.uint64))
        self.words = np.zeros(WORDS, np.uint64)
        self.turn = 0

    def fresh(self) -> np.ndarray:
        self.turn += 1
        return np.arange(WORDS, dtype=np.uint64) + np.uint64(self.turn << 32)

    def seen(self) -> np.ndarray:
        return self.kept.show()

    def write(self) -> None:
        self._put(lambda new: self.peer.write(new, self.kept.remote))

    def write_many(self) -> None:
        cuts = [slice(first, first + 500) for first in range(0, WORDS, 500)]
        self._put(
            lambda new: self.peer.write_many([(new[cut], self.kept.remote[cut]) for cut in cuts])
        )

    def _put(self, begin: Callable[[np.ndarray], zh.Transfer]) -> None:
        new, old = self.fresh(), self.words
        try:
            begin(new).wait()
        except zh.Error as error:
            self.settle()
            self.words = self.seen()
            allowed = (self.words == old) | ((self.words == new) & (error.effect != "nothing"))
            # A word is not split by a device, but a cut may lie within one.
            check(allowed.sum() >= WORDS - 1, f"{error!r} leaves other bytes than it says")
            raise
        self.words = self.seen()
        check((self.words == new).all(), "a write that ended well is not there")

    def read(self) -> None:
        sink = np.zeros(WORDS, np.uint64)
        self.peer.read(self.kept.remote, sink).wait()
        check((sink == self.words).all(), "a read that ended well brought other bytes")

    def fetch_add(self) -> None:
        was = int(self.words[7])
        try:
            old = self.peer.fetch_add(self.kept.remote[7], 1).wait()
        except zh.Error:
            self.settle()
            self.words = self.seen()
            check(int(self.words[7]) in (was, was + 1), "an atomic was applied twice")
            raise
        self.words = self.seen()
        check((old, int(self.words[7])) == (was, was + 1), "an atomic that ended well is not there")

    def settle(self) -> None:
        """Returns when nothing earlier is on its way any more and the connection works."""
        self.session.ep.set_faults(None)
        end = time.monotonic() + RECOVERS_WITHIN
        while True:
            try:
                self.peer.fetch_add(self.kept.remote[0], 0).wait()
            except zh.VerbsError:
                check(time.monotonic() < end, f"no recovery within {RECOVERS_WITHIN} s")
            else:
                return


OPERATIONS = (Ends.write, Ends.write_many, Ends.read, Ends.fetch_add)


def rows(partners: Partners, times: int, seed: int) -> Iterator[dict[str, Any]]:
    os.environ["ZEROHOP_P2P"] = "0"
    for fault, text in FAULTS.items():
        for operation in OPERATIONS:
            yield _row(partners, fault, f"{text},seed={seed}", operation, times)
    yield _unplugged(partners)


def _row(
    partners: Partners, fault: str, text: str, operation: Callable[[Ends], None], times: int
) -> dict[str, Any]:
    outcomes: Counter[str] = Counter()
    trouble = ""
    with Remote(partners, "process", "soft0")(keep, **OPTIONS) as session:
        ends = Ends(session)
        try:
            for _ in range(times):
                session.ep.set_faults(text)
                outcomes[_outcome(ends, operation)] += 1
                session.ep.set_faults(None)
        except AssertionError as error:
            trouble = str(error)
        injected = session.ep.stats().get("faults", {}).get(fault, 0)
        session.link.send(("end",))
    return {
        "what": "faults",
        "route": "soft0",
        "fault": fault,
        "operation": operation.__name__,
        "times": times,
        "injected": injected,
        "outcomes": dict(outcomes),
        "trouble": trouble,
        "holds": not trouble and injected > 0,
    }


def _outcome(ends: Ends, operation: Callable[[Ends], None]) -> str:
    try:
        operation(ends)
    except zh.Error as error:
        ends.settle()
        return type(error).__name__
    return "done"


def _unplugged(partners: Partners) -> dict[str, Any]:
    """The device is gone: PeerLost in time, and a new Endpoint works."""
    with Remote(partners, "process", "soft0")(keep, **OPTIONS) as session:
        ends = Ends(session)
        ends.write()
        session.ep.set_faults("remove=1")
        begun, outcome = time.monotonic(), "done"
        while outcome != "PeerLost" and time.monotonic() - begun < 5.0:
            try:
                session.peer.fetch_add(ends.kept.remote[0], 1).wait()
            except zh.Error as error:
                outcome = type(error).__name__
        took = time.monotonic() - begun
        with zh.Endpoint("soft0", p2p=False, **OPTIONS) as again:
            sink = np.zeros(WORDS, np.uint64)
            again.connect(session.address).read(ends.kept.remote, sink).wait()
        session.link.send(("end",))
    return {
        "what": "faults",
        "route": "soft0",
        "fault": "remove",
        "operation": "fetch_add",
        "times": 1,
        "injected": 1,
        "outcomes": {outcome: 1},
        "trouble": "",
        "seconds": took,
        "holds": outcome == "PeerLost" and bool((sink[1:] == ends.words[1:]).all()),
    }
