"""Random calls, faults, killed and unplugged ends, against a model of memory and notifications.

`make test` spends 20 seconds on seeds from 1 on. ZEROHOP_TEST_MODEL_SECONDS gives it more, and
ZEROHOP_TEST_MODEL_SEED another first seed: make pytest ARGS="-s tests/contract/test_model.py" prints those it has tried.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import hypothesis
import numpy as np
import pytest
import zerohop as zh
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.model_far import COUNTERS, GUARD, MARGIN, NBYTES, OPTIONS, SLOTS, FarProcess
from support.patience import LOST_WITHIN, patient

SECONDS = float(os.environ.get("ZEROHOP_TEST_MODEL_SECONDS", "20"))
SEED = int(os.environ.get("ZEROHOP_TEST_MODEL_SEED", "1"))
SETTINGS = hypothesis.settings(
    max_examples=4,
    stateful_step_count=30,
    deadline=None,
    database=None,
    phases=[hypothesis.Phase.generate],  # what depends on time does not shrink
    suppress_health_check=list(hypothesis.HealthCheck),
)
WAIT = patient(10.0)  # seconds; the bound that the waits below are given
BOUND = WAIT + LOST_WITHIN + patient(5.0)  # of each of them, on a busy machine

FAULTS = [
    None,
    "drop=0.05",
    "drop=0.3",
    "duplicate=0.5",
    "corrupt=0.2",
    "cut=0.05",
    "partial=0.1",
    "rnr=0.3",
    "delay=1ms,delay_rate=0.2",
    "slow=500us",
    "drop=0.05,duplicate=0.1,corrupt=0.05,rnr=0.1,cut=0.01,partial=0.01,slow=100us",
]
STATUSES = [
    "RETRY_EXC_ERR",
    "REM_OP_ERR",
    "REM_ACCESS_ERR",
    "LOC_PROT_ERR",
    "WR_FLUSH_ERR",
    "GENERAL_ERR",
]
offsets = st.integers(0, NBYTES - 1)
sizes = st.sampled_from([1, 7, 8, 64, 1000, 4096, 5000, 70_000, 200_000])
waits = st.sampled_from([None, None, 0.0, 0.001])


class Model(RuleBasedStateMachine):
    """`far` and `counters` are what the far end's memory must hold; a failed call leaves several answers."""

    outcomes: ClassVar[Counter[str]] = Counter()
    process: FarProcess | None = None
    spare: FarProcess | None = None

    @initialize(
        mapped=st.booleans(),
        p2p=st.sampled_from([0, 0, 1]),
        mortal=st.integers(0, 2),
        near=st.sampled_from(FAULTS),
        far=st.sampled_from(FAULTS),
        seed=st.integers(0, 999),
    )
    def begin(
        self, mapped: bool, p2p: int, mortal: int, near: str | None, far: str | None, seed: int
    ) -> None:
        self.mapped, self.p2p, self.lives, self.devices = mapped, p2p, int(mortal == 0), 1
        self.content = 0  # makes bytes that no earlier call wrote
        self.ep: zh.Endpoint | None = None
        self.open()
        self.start()
        self.set_faults("near", near, seed)
        self.set_faults("far", far, seed)

    def open(self) -> None:
        if self.ep is not None:
            self.ep.close(0)
        self.ep = zh.Endpoint("soft0", p2p=self.p2p, name="near", **OPTIONS)
        self.near_all = np.full(MARGIN + NBYTES + MARGIN, GUARD, np.uint8)
        self.near_all[MARGIN:-MARGIN] = 0
        self.near = self.ep.register(self.near_all)[MARGIN:-MARGIN]

    def start(self) -> None:
        """A far end with fresh memory."""
        if Model.process is None:
            Model.process = (Model.spare or FarProcess()).await_ready()
            Model.spare = FarProcess()
        self.faults: dict[str, str | None] = {"near": None, "far": None}
        self.address, memory, counters = self.ask("begin", self.mapped)
        self.remote, self.remote_counters = map(zh.RemoteMemory.from_bytes, (memory, counters))
        self.far = np.zeros(NBYTES, np.uint8)
        self.counters = [0] * COUNTERS
        self.connect()

    def ask(self, *order: Any) -> Any:
        assert Model.process is not None
        return Model.process.ask(*order)

    def connect(self) -> None:
        self.peer = self.ep.connect(self.address, timeout=WAIT)
        self.ask("accept")

    # --- calls that may fail ---

    def attempt(
        self, begin: Callable[[], zh.Transfer], wait: float | None = None
    ) -> tuple[Any, zh.Error | None]:
        """Its result, or its error; in any case in time."""
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

    # --- rules ---

    @rule(at=offsets, nbytes=sizes, wait=waits)
    def write(self, at: int, nbytes: int, wait: float | None) -> None:
        data = self.fresh(min(nbytes, NBYTES - at))
        _, error = self.attempt(
            lambda: self.peer.write(data, self.remote[at : at + len(data)]), wait
        )
        self.check([(at, data)], error)

    @rule(at=offsets, nbytes=sizes, slot=st.integers(0, SLOTS - 1))
    def write_and_notify(self, at: int, nbytes: int, slot: int) -> None:
        data = self.fresh(min(nbytes, NBYTES - at))
        end = at + len(data)
        value = self.content
        Model.process.order("watch", slot, at, end)
        _, error = self.attempt(
            lambda: self.peer.write(data, self.remote[at:end], notify=(slot, value))
        )
        if error is not None:
            Model.process.order("tired")
        seen, there = Model.process.link.recv(BOUND)
        if error is not None:
            assert Model.process.link.recv() is None
        assert seen in ({0, value} if error is not None else {value})
        assert not seen or there == data.tobytes(), "the notification came before its data"
        assert not seen or error is None or error.effect != "nothing"
        self.check([(at, data)], error)

    @rule(
        blocks=st.lists(
            st.tuples(st.integers(0, 63), st.sampled_from([1, 8, 300, 4096])),
            min_size=1,
            max_size=40,
            unique_by=lambda block: block[0],
        )
    )
    def write_many(self, blocks: list[tuple[int, int]]) -> None:
        written = [(place * 4096, self.fresh(nbytes)) for place, nbytes in blocks]
        pairs = [(data, self.remote[at : at + len(data)]) for at, data in written]
        _, error = self.attempt(lambda: self.peer.write_many(pairs))
        self.check(written, error)

    @rule(at=offsets, nbytes=sizes, to=offsets, wait=waits)
    def read(self, at: int, nbytes: int, to: int, wait: float | None) -> None:
        nbytes = min(nbytes, NBYTES - at, NBYTES - to)
        before = self.near_all.copy()
        before[MARGIN + to : MARGIN + to + nbytes] = 0
        self.near_all[:] = before
        _, error = self.attempt(
            lambda: self.peer.read(self.remote[at : at + nbytes], self.near[to : to + nbytes]), wait
        )
        if error is not None:
            self.settle()
        after = before.copy()
        after[MARGIN + to : MARGIN + to + nbytes] = self.far[at : at + nbytes]
        fits = self.near_all == after
        if error is not None:
            fits = fits & (error.effect != "nothing") | (self.near_all == before)
        assert fits.all(), f"{(~fits).sum()} bytes are wrong; {error!r}"
        self.check()

    @rule(index=st.integers(0, COUNTERS - 2), addend=st.integers(-5, 1 << 40), wait=waits)
    def fetch_add(self, index: int, addend: int, wait: float | None) -> None:
        old, error = self.attempt(
            lambda: self.peer.fetch_add(self.remote_counters[index], addend), wait
        )
        self.after_atomic(index, self.counters[index] + addend, old, error)

    @rule(index=st.integers(0, COUNTERS - 2), fits=st.booleans(), desired=st.integers(0, 1 << 40))
    def compare_swap(self, index: int, fits: bool, desired: int) -> None:
        now = self.counters[index]
        expected = now if fits else now + 1
        old, error = self.attempt(
            lambda: self.peer.compare_swap(self.remote_counters[index], expected, desired)
        )
        self.after_atomic(index, desired if fits else now, old, error)

    def after_atomic(self, index: int, new: int, old: int | None, error: zh.Error | None) -> None:
        was = self.counters[index]
        if error is None:
            assert old == was
            self.counters[index] = new
        else:
            self.settle()
            [now] = self.ask("show")[1][index : index + 1]
            assert now in ({was} if error.effect == "nothing" else {was, new}), error
            self.counters[index] = now
        self.check()

    @rule(nbytes=sizes, wait=waits)
    def send(self, nbytes: int, wait: float | None) -> None:
        data = self.fresh(nbytes)
        tag = self.content
        if not self.ask("await_message", nbytes, tag):
            return self.settle()
        _, error = self.attempt(lambda: self.peer.send(data, tag=tag), wait)
        if error is not None:
            return self.settle()  # a recv there may wait for ever: nobody else has that tag
        came = self.ask("message")
        if came is None:  # what the peer had buffered went with its queue pair
            return self.settle()
        assert came == data.tobytes()
        self.check()

    @rule(nbytes=sizes)
    def recv(self, nbytes: int) -> None:
        data = self.fresh(nbytes)
        tag = self.content
        array = np.zeros(nbytes, np.uint8)
        Model.process.order("send", data.tobytes(), tag)
        error: zh.Error | None = None
        try:
            count = self.peer.recv(array, tag=tag).wait(timeout=WAIT if self.calm() else 0.5)
        except (
            zh.Error
        ) as raised:  # a TransferTimeout, too: what was lost with a queue pair does not come
            error = raised
        told = Model.process.link.recv(BOUND)
        if error is None:
            assert (count, array.tobytes()) == (nbytes, data.tobytes())
        else:
            assert not self.calm(), (error, told)
        if error is not None or told:  # told alone: an acknowledgement was lost
            self.settle()
        self.check()

    def calm(self) -> bool:
        return not any(self.faults.values())

    @rule(
        side=st.sampled_from(["near", "far"]),
        text=st.sampled_from(FAULTS),
        seed=st.integers(0, 999),
    )
    def set_faults(self, side: str, text: str | None, seed: int) -> None:
        self.put_faults(side, text and f"{text},seed={seed}")

    @rule(
        side=st.sampled_from(["near", "far"]),
        number=st.integers(1, 4),
        status=st.sampled_from(STATUSES),
    )
    def set_failure(self, side: str, number: int, status: str) -> None:
        self.put_faults(side, f"fail={number},fail_status={status}")

    @rule()
    def reconnect(self) -> None:
        self.peer.close()
        self.connect()
        self.ask("quiet")
        self.check()

    @precondition(lambda self: self.devices > 0)
    @rule(at=offsets, nbytes=sizes)
    def unplug(self, at: int, nbytes: int) -> None:
        """This side's device is gone with the next request."""
        self.devices -= 1
        self.put_faults("near", "remove=1")
        data = self.fresh(min(nbytes, NBYTES - at))
        _, error = self.attempt(lambda: self.peer.write(data, self.remote[at : at + len(data)]))
        self.attempt(self.add_nothing)
        self.open()
        self.faults["near"] = None
        self.connect()
        self.ask("quiet")
        self.check([(at, data)], error)

    @precondition(lambda self: self.lives > 0)
    @rule(at=offsets, nbytes=sizes)
    def kill(self, at: int, nbytes: int) -> None:
        """While a write is under way."""
        self.lives -= 1
        data = self.fresh(min(nbytes, NBYTES - at))

        def begin() -> zh.Transfer:
            transfer = self.peer.write(data, self.remote[at : at + len(data)])
            Model.process.process.send_signal(signal.SIGKILL)
            return transfer

        start = time.monotonic()
        self.attempt(begin)
        Model.process.process.wait(patient(10))
        while not isinstance(self.attempt(self.add_nothing)[1], zh.PeerLost):
            assert time.monotonic() - start < LOST_WITHIN + patient(1.0)
        self.forget()
        self.ep.set_faults(None)
        self.start()

    @classmethod
    def forget(cls) -> None:
        if cls.process is not None:
            cls.process.kill()
        cls.process = None

    def teardown(self) -> None:
        if getattr(self, "ep", None) is not None:
            self.ep.close(0)


@pytest.mark.timeout(SECONDS + 100)
@pytest.mark.filterwarnings("ignore:.*DEVICE_FATAL:RuntimeWarning")
def test_all_calls_keep_their_guarantees_whatever_goes_wrong() -> None:
    end = time.monotonic() + SECONDS
    number = SEED
    try:
        while time.monotonic() < end:
            print(f"seed {number}", flush=True)
            run_state_machine_as_test(hypothesis.seed(number)(Model), settings=SETTINGS)
            number += 1
    finally:
        print(", ".join(f"{count} {outcome}" for outcome, count in Model.outcomes.most_common()))
        Model.forget()
        if Model.spare is not None:
            Model.spare.kill()
            Model.spare = None
