"""Random calls, faults, killed and unplugged ends, against a model of memory and notifications.

`make test` spends 20 seconds on seeds from 1 on. ZEROHOP_TEST_MODEL_SECONDS gives it more, and
ZEROHOP_TEST_MODEL_SEED another first seed: make pytest ARGS="-s tests/contract/test_model.py" prints those it has tried.
"""

import os
import signal
import time

import hypothesis
import numpy as np
import pytest
import zerohop as zh
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test
from support.model_far import COUNTERS, MARGIN, NBYTES, SLOTS
from support.model_near import BOUND, WAIT, Ends
from support.patience import LOST_WITHIN, patient

SECONDS = float(os.environ.get("ZEROHOP_TEST_MODEL_SECONDS", "20"))
SEED = int(os.environ.get("ZEROHOP_TEST_MODEL_SEED", "1"))
SETTINGS = hypothesis.settings(
    max_examples=8,
    stateful_step_count=30,
    deadline=None,
    database=None,
    verbosity=hypothesis.Verbosity.debug,  # each step: pytest shows them where one fails
    phases=[hypothesis.Phase.generate],  # what depends on time does not shrink
    suppress_health_check=list(hypothesis.HealthCheck),
)
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


class Model(Ends):
    """What each call must leave behind, whether it ends well or not."""

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
        Ends.process.tell("watch", slot, at, end)
        _, error = self.attempt(
            lambda: self.peer.write(data, self.remote[at:end], notify=(slot, value))
        )
        if error is not None:
            Ends.process.tell("tired")
        seen, there = Ends.process.answer(BOUND)
        if error is not None:
            assert Ends.process.answer() is None
        assert seen in ({0, value} if error is not None else {value})
        assert not seen or there == data.tobytes(), "the notification came before its data"
        assert not seen or error is None or error.effect != "nothing"
        self.check([(at, data)], error)
        late = self.ask("take", slot)
        assert late in ({0, value} if error is not None and not seen else {0})
        assert not late or (self.far[at:end] == data).all(), (
            "the notification came without its data"
        )

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
        Ends.process.tell("send", data.tobytes(), tag)
        error: zh.Error | None = None
        try:
            count = self.peer.recv(array, tag=tag).wait(timeout=WAIT if self.calm() else 0.5)
        except (
            zh.Error
        ) as raised:  # a TransferTimeout, too: what was lost with a queue pair does not come
            error = raised
        reported = Ends.process.answer(BOUND)
        if error is None:
            assert (count, array.tobytes()) == (nbytes, data.tobytes())
        else:
            assert not self.calm(), (error, reported)
        if error is not None or reported:  # reported alone: an acknowledgement was lost
            self.settle()
        self.check()

    @rule(
        side=st.sampled_from(["near", "far"]),
        text=st.sampled_from(FAULTS),
        seed=st.integers(0, 999),
    )
    def set_faults(self, side: str, text: str | None, seed: int) -> None:
        self.put_faults(side, text and f"{text},seed={seed}")
        if self.calm():
            self.settle()  # of what went wrong before nothing is left

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
            os.kill(Ends.process.pid, signal.SIGKILL)
            return transfer

        start = time.monotonic()
        self.attempt(begin, dying=True)
        Ends.process.await_end()
        while not isinstance(self.attempt(self.add_nothing, dying=True)[1], zh.PeerLost):
            assert time.monotonic() - start < LOST_WITHIN + patient(1.0)
        self.forget()
        self.ep.set_faults(None)
        self.start()


@pytest.mark.timeout(SECONDS + 100)
@pytest.mark.filterwarnings("ignore:.*DEVICE_FATAL:RuntimeWarning")
def test_all_calls_keep_their_guarantees_whatever_goes_wrong():
    end = time.monotonic() + SECONDS
    number = SEED
    try:
        while time.monotonic() < end:
            print(f"seed {number}", flush=True)
            run_state_machine_as_test(hypothesis.seed(number)(Model), settings=SETTINGS)
            number += 1
        assert Ends.outcomes["done"] > Ends.outcomes.total() / 2, Ends.outcomes
    finally:
        print(", ".join(f"{count} {outcome}" for outcome, count in Ends.outcomes.most_common()))
        Ends.forget()
        if Ends.spare is not None:
            Ends.spare.discard()
            Ends.spare = None
