"""Waits for a Collective, and how long work of the torch.distributed backend and the end of its groups may take."""

import pickle
import threading
import time

import pytest
import zerohop as zh
from zerohop.collectives import Collective
from zerohop.torch import group
from zerohop.torch.sparse import SparseWork
from zerohop.torch.works import CollectiveWork, StreamWork, Works


def test_work_behind_others_ends_by_its_call_and_not_by_the_wait():
    collective = Collective("broadcast of rank 0", timeout=0.01)
    work = CollectiveWork(collective, [], 0.01, "")
    threading.Timer(0.1, collective._end, [None]).start()
    assert Works([work], 0.01).wait()
    assert work.wait()


@pytest.mark.parametrize("early", [True, False])
def test_the_value_of_a_failed_future_cannot_be_taken(early):
    """DDP looks for its tensors in C++, and would crash without any."""
    collective = Collective("all_reduce of 'a group', call 1", 5.0)
    lost, values = zh.PeerLost("rank 1 is lost"), []
    if early:
        collective._end(lost)
    future = CollectiveWork(collective, [], 5.0, "").get_future()
    if not early:
        collective._end(lost)
    with pytest.raises(zh.PeerLost, match="rank 1 is lost"):
        future.wait()
    future._set_unwrap_func(values.append)
    future.wait()
    with pytest.raises(zh.PeerLost, match="rank 1 is lost"):
        pickle.dumps(values[0])


def test_a_work_shows_its_call_and_its_state():
    first, second = (Collective(f"all_reduce of 'g', call {n}", 5.0) for n in (1, 2))
    works = [CollectiveWork(first, [], 5.0, ""), StreamWork(second, None, [], 5.0, None)]
    both = Works(works, 5.0)
    assert repr(works[0]) == "<zerohop.torch CollectiveWork: all_reduce of 'g', call 1, under way>"
    first._end(None)
    second._end(zh.PeerLost("rank 1 is lost"))
    assert repr(works[0]) == "<zerohop.torch CollectiveWork: all_reduce of 'g', call 1, done>"
    assert repr(works[1]) == "<zerohop.torch StreamWork: all_reduce of 'g', call 2, failed>"
    calls = "all_reduce of 'g', call 1, done; all_reduce of 'g', call 2, failed"
    assert repr(both) == f"<zerohop.torch Works: {calls}>"
    sparse = SparseWork(both, None, list, 5.0)
    assert repr(sparse) == f"<zerohop.torch SparseWork: all_reduce of a sparse tensor: {calls}>"


def test_goodbyes_one_after_the_other_share_their_time(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(group, "_together_until", 0.0)
    assert group._left_for_goodbye() == 2.0
    now += 1.5
    assert group._left_for_goodbye() == 0.5
    now += 1.5
    assert group._left_for_goodbye() == 0.0
    now += 1.5  # a later one
    assert group._left_for_goodbye() == 2.0


def test_one_that_has_ended_is_so_for_all_who_wait():
    collective = Collective("barrier of 'a group', call 1", 5.0)
    with pytest.raises(zh.TransferTimeout, match="still running"):
        collective.wait(0.0)
    collective._end(None)
    with collective._under_way:  # another one, on its way out of its own wait
        assert collective.join(0.0)
        collective.wait(0.0)


def test_what_ended_it_is_raised_for_all_who_wait():
    collective = Collective("barrier of 'a group', call 1", 5.0)
    collective._end(zh.PeerLost("the other one is lost"))
    with collective._under_way, pytest.raises(zh.PeerLost):
        collective.wait(0.0)
