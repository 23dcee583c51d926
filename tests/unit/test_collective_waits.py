"""Waits for a Collective, of several at the same time."""

import pytest
import zerohop as zh
from zerohop.collectives.order import Collective


def test_one_that_has_ended_is_so_for_all_who_wait() -> None:
    collective = Collective("barrier of 'a group', call 1", 5.0)
    with pytest.raises(zh.TransferTimeout, match="still running"):
        collective.wait(0.0)
    collective._end(None)
    with collective._under_way:  # another one, on its way out of its own wait
        assert collective.join(0.0)
        collective.wait(0.0)


def test_what_ended_it_is_raised_for_all_who_wait() -> None:
    collective = Collective("barrier of 'a group', call 1", 5.0)
    collective._end(zh.PeerLost("the other one is lost"))
    with collective._under_way, pytest.raises(zh.PeerLost):
        collective.wait(0.0)
