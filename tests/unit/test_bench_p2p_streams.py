"""The ping-pong from stream to stream of `zerohop bench p2p`: that it cannot hang, on a model of streams."""

from typing import Any

import numpy as np
import pytest
from support.stream_model import Model, Process
from zerohop.bench.p2p import streams
from zerohop.bench.p2p.plan import ROUNDS
from zerohop.bench.p2p.streams import BALL, GATE, PingPong
from zerohop.bench.p2p.suite import BOUND_S
from zerohop.bench.plan import FigureFailed
from zerohop.bench.side import Side


def ping_pong(process: Process, kind: type[PingPong] = PingPong) -> PingPong:
    memory: Any = np.zeros(64, np.uint8)
    side = Side(process.rank == 0, process, process, memory, memory)
    return kind(process, side, process)


def test_it_plays_every_round_behind_the_gate_and_may_be_repeated() -> None:
    model = Model()

    def twice(process: Process) -> Any:
        player = ping_pong(process)
        return [player.measure(8) for _ in range(2)]

    for found in model.run(twice):
        assert [seconds["one_way"] for seconds in found] == [1.28 / ROUNDS / 2] * 2
        assert all(seconds["per_call"] > 0 for seconds in found)
    first, second = (process.ended for process in model.processes)
    throws = [f"write {BALL} in 0", f"wait {BALL}"] * ROUNDS
    assert first[-2 * ROUNDS - 1 :] == [f"wait {GATE}", *throws]
    assert second[-2 * ROUNDS - 1 :] == [f"write {GATE} in 1", *throws[1:], throws[0]]


def test_all_that_a_wait_could_hold_up_was_done_before_the_first_that_lasts() -> None:
    model = Model()
    model.run(lambda process: ping_pong(process).measure(8))
    for process in model.processes:
        assert process.ended_before_lasting is not None
        assert {
            *(f"write {BALL} in 0", f"write {GATE} in 1"),
            *(f"wait {BALL}", f"wait {GATE}"),
        } <= set(process.ended_before_lasting)


@pytest.mark.parametrize(("rank", "slot"), [(0, BALL), (1, BALL), (1, GATE)])
def test_what_does_not_come_fails_in_both_and_leaves_the_streams_empty(rank, slot) -> None:
    model = Model()

    def play(process: Process) -> Any:
        player = ping_pong(process)
        player.measure(8)
        if process.rank == rank:
            warm_up = player._warm_up

            def then_lose(*arguments: Any) -> None:
                warm_up(*arguments)
                process.loses.add(slot)

            player._warm_up = then_lose
        return player.measure(8)

    for failure in model.run(play):
        assert isinstance(failure, FigureFailed)
        assert "TransferTimeout: slot" in str(failure)
    assert not any(stream.todo for process in model.processes for stream in process.streams)


class OpenedByTheCpu(PingPong):
    def _open(self, source: Any, target: Any) -> Any:
        return self._side.peer.notify(GATE, 1)


def test_a_gate_that_the_cpu_opens_stays_shut() -> None:
    """Its notification comes behind the writes in streams, which wait for the first ball."""
    for failure in Model().run(lambda process: ping_pong(process, OpenedByTheCpu).measure(8)):
        assert isinstance(failure, FigureFailed)


def test_every_wait_has_ended_before_the_stream_is_given_up_and_that_before_the_worker_is() -> None:
    assert streams.OPEN_S + ROUNDS * streams.BALL_S < streams.DRAIN_S < BOUND_S
