"""The near end of tests/contract/test_model.py, and what the memory of both must hold."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import zerohop as zh
from hypothesis.stateful import RuleBasedStateMachine

from support.model_far import COUNTERS, GUARD, MARGIN, NBYTES, OPTIONS
from support.patience import LOST_WITHIN, patient
from support.spawned import Worker

WAIT = patient(10.0)  # seconds; the bound that the waits below are given
BOUND = WAIT + LOST_WITHIN + patient(5.0)  # of each of them, on a busy machine


class Ends(RuleBasedStateMachine):
    """`far` and `counters` are what the far end's memory must hold; a failed call leaves several answers."""

    outcomes: ClassVar[Counter[str]] = Counter()
    process: Worker | None = None
    spare: Worker | None = None

    def open(self) -> None:
        if self.ep is not None:
            self.ep.close(0)
        self.ep = zh.Endpoint("soft0", p2p=self.p2p, name="near", **OPTIONS)
        self.near_all = np.full(MARGIN + NBYTES + MARGIN, GUARD, np.uint8)
        self.near_all[MARGIN:-MARGIN] = 0
        self.near = self.ep.register(self.near_all)[MARGIN:-MARGIN]

    def start(self) -> None:
        """A far end with fresh memory."""
        if Ends.process is None:
            Ends.process = Ends.spare or Worker("support.model_far")
            Ends.spare = Worker("support.model_far")
        self.faults: dict[str, str | None] = {"near": None, "far": None}
        self.address, memory, counters = self.ask("begin", self.mapped)
        self.remote, self.remote_counters = map(zh.RemoteMemory.from_bytes, (memory, counters))
        self.far = np.zeros(NBYTES, np.uint8)
        self.counters = [0] * COUNTERS
        self.connect()

    def ask(self, *order: Any) -> Any:
        assert Ends.process is not None
        return Ends.process.ask(*order)

    def connect(self) -> None:
        self.peer = self.ep.connect(self.address, timeout=WAIT)
        self.ask("accept")

    # --- calls that may fail ---

    def attempt(
        self, begin: Callable[[], zh.Transfer], wait: float | None = None, *, dying: bool = False
    ) -> tuple[Any, zh.Error | None]:
        """Its result, or its error; in any case in time. dying: an end is, so that there may be one without faults."""
        start = time.monotonic()
        try:
            transfer = begin()
            if wait is not None:
                with suppress(zh.TransferTimeout):
                    transfer.wait(timeout=wait)
            result = transfer.wait(timeout=WAIT)
        except zh.TransferTimeout:
            raise AssertionError(f"{self.faults} have kept a transfer for {WAIT} s") from None
        except zh.Error as error:
            if self.calm() and not dying:
                raise AssertionError(f"an error without a fault: {error!r}") from error
            self.outcomes[f"{type(error).__name__}, {error.effect}"] += 1
            return None, error
        else:
            self.outcomes["done"] += 1
            return result, None
        finally:
            assert time.monotonic() - start < BOUND

    def settle(self) -> None:
        """After an error: makes the device work again, with which nothing earlier is on its way any more."""
        before = dict(self.faults)
        for side in before:
            self.put_faults(side, None)
        end = time.monotonic() + BOUND
        while True:
            assert time.monotonic() < end, "the connection does not recover"
            try:
                if not self.peer.alive:
                    self.connect()
                self.add_nothing().wait(timeout=WAIT)
                break
            except zh.Error:
                continue
        self.ask("quiet")
        for side, text in before.items():
            self.put_faults(side, text)

    def add_nothing(self) -> zh.Transfer:
        """By the device, whatever route others take."""
        return self.peer.fetch_add(self.remote_counters[COUNTERS - 1], 0)

    def put_faults(self, side: str, text: str | None) -> None:
        if side == "near":
            self.ep.set_faults(text)
        else:
            self.ask("faults", text)
        self.faults[side] = text

    # --- what memory must hold ---

    def fresh(self, nbytes: int) -> np.ndarray:
        self.content += 1
        return (np.arange(nbytes) * 31 + self.content * 17).astype(np.uint8)

    def check(
        self, written: list[tuple[int, np.ndarray]] = (), error: zh.Error | None = None
    ) -> None:
        """After a write of these bytes, which may have failed: all is there, or as much as the error says."""
        if error is not None:
            self.settle()
        whole, counters = self.ask("show")
        seen = np.frombuffer(whole, np.uint8)
        assert (seen[:MARGIN] == GUARD).all(), "bytes before the memory have changed"
        assert (seen[-MARGIN:] == GUARD).all(), "bytes behind the memory have changed"
        seen = seen[MARGIN:-MARGIN]
        new = self.far.copy()
        for at, data in written:
            new[at : at + len(data)] = data
        if error is None:
            fits = seen == new
        elif error.effect == "nothing":
            fits = seen == self.far
        else:
            fits = (seen == new) | (seen == self.far)
        assert fits.all(), f"byte {np.argmin(fits)} of {(~fits).sum()} wrong ones; {error!r}"
        assert counters == self.counters
        self.far = seen.copy()
        assert (self.near_all[:MARGIN] == GUARD).all(), "bytes before the array have changed"
        assert (self.near_all[-MARGIN:] == GUARD).all(), "bytes behind the array have changed"

    def calm(self) -> bool:
        return not any(self.faults.values())

    @staticmethod
    def forget() -> None:
        if Ends.process is not None:
            Ends.process.discard()
        Ends.process = None

    def teardown(self) -> None:
        if getattr(self, "ep", None) is not None:
            self.ep.close(0)
