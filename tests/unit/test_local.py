"""Worker processes: what they say arrives, and every way of failing ends the job with its reason."""

import atexit
import os
import signal
import threading
import time
from multiprocessing.context import SpawnProcess

import pytest
from zerohop.local import Link, RankFailed, Ranks


def gather_twice(link: Link, word: str) -> list[str]:
    first = link.exchange(f"{word}{link.rank}")
    return link.exchange("+".join(first))


def answer_orders(link: Link) -> str:
    while (order := link.order()) is not None:
        link.answer((link.rank, order))
    return "done"


def fail_at(link: Link, bad: int) -> None:
    if link.rank == bad:
        raise ValueError("the grid is flat")
    link.exchange(None)


def die_at(link: Link, bad: int) -> None:
    if link.rank == bad:
        os.kill(os.getpid(), signal.SIGKILL)
    link.exchange(None)


def kill_the_other_and_fail(link: Link) -> None:
    pids = link.exchange(os.getpid())
    if link.rank == 1:
        signal.pause()
    os.kill(pids[1], signal.SIGKILL)
    raise ConnectionError("rank 1 is lost")


def fail_and_be_killed(link: Link, bad: int) -> None:
    """As a library that aborts when it cannot clean up."""
    if link.rank == bad:
        atexit.register(os.kill, os.getpid(), signal.SIGTERM)
    fail_at(link, bad)


def leave_at(link: Link, bad: int) -> None:
    if link.rank == bad:
        os._exit(7)
    link.exchange(None)


def interruption(link: Link) -> bool:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return signal.getsignal(signal.SIGINT) == signal.SIG_IGN and signal.SIGINT not in blocked


def pause(link: Link) -> None:
    signal.pause()


def test_exchange_gathers_in_rank_order():
    with Ranks(gather_twice, 3, "r") as ranks:
        assert ranks.results() == [["r0+r1+r2"] * 3] * 3


def test_each_rank_answers_each_order():
    with Ranks(answer_orders, 2) as ranks:
        assert ranks.ask("a") == [(0, "a"), (1, "a")]
        assert ranks.ask("b") == [(0, "b"), (1, "b")]
        ranks.tell(None)
        assert ranks.results() == ["done", "done"]


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (fail_at, "rank 1 failed: ValueError: the grid is flat"),
        (fail_and_be_killed, "rank 1 failed: ValueError: the grid is flat"),
        (die_at, "rank 1 was killed by SIGKILL"),
        (leave_at, "rank 1 exited with status 7"),
    ],
)
def test_a_failing_rank_ends_the_job_with_its_reason(work, reason):
    with Ranks(work, 3, 1) as ranks, pytest.raises(RankFailed, match=reason) as failure:
        ranks.results()
    assert failure.value.rank == 1


def test_a_killed_rank_is_named_although_another_complains():
    with (
        Ranks(kill_the_other_and_fail, 2) as ranks,
        pytest.raises(RankFailed, match="rank 1 was killed by SIGKILL"),
    ):
        ranks.results()


def test_a_worker_killed_while_it_waits_is_noticed_by_the_next_order():
    with Ranks(answer_orders, 2) as ranks:
        ranks.ask("ready?")
        os.kill(ranks.pids[1], signal.SIGKILL)
        with pytest.raises(RankFailed, match="rank 1 was killed by SIGKILL"):
            ranks.ask("still there?")


def test_workers_take_no_notice_of_an_interruption():
    with Ranks(interruption, 2) as ranks:
        assert ranks.results() == [True, True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_silence_is_bounded_and_no_worker_survives():
    begin = time.monotonic()
    with Ranks(pause, 2, silence=0.5) as ranks:
        pids = ranks.pids
        with pytest.raises(RankFailed, match="no message from rank 0, 1 for"):
            ranks.results()
    assert time.monotonic() - begin < 30
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_an_interruption_waits_until_a_worker_is_started(monkeypatch):
    """Another thread takes it, as those of libraries do."""
    start, started = SpawnProcess.start, []

    def interrupted(process: SpawnProcess) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        start(process)
        started.append(process)

    monkeypatch.setattr(SpawnProcess, "start", interrupted)
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            Ranks(answer_orders, 2)
    finally:
        ended.set()
        other.join()
    [process] = started
    assert process.exitcode == -signal.SIGKILL
