"""The measuring loops that `zerohop bench` itself does not run: a write whose last byte is polled."""

from __future__ import annotations

import numpy as np
import pytest
import zerohop as zh
from zerohop import _core
from zerohop.bench.plan import DRIVERS, Order
from zerohop.bench.worker import work
from zerohop.local import Ranks


def test_a_write_is_seen_without_a_notification_by_both_drivers() -> None:
    with Ranks(work, 2, "soft0", 4096) as ranks:
        for nbytes in (8, 1, 8, 512):
            for driver in DRIVERS:
                first, second = ranks.ask(Order("write_latency", driver, nbytes, 300))
                assert len(first) == len(second) == 300
                assert all(seconds > 0 for seconds in first)
        assert ranks.ask("facts")[0]["mtu"] >= 256
        for driver in DRIVERS:
            first, second = ranks.ask(Order("send_latency", driver, 64, 30))
            assert len(first) == len(second) == 30
            assert all(seconds > 0 for seconds in first)
        ranks.tell(None)
        ranks.results()


@pytest.fixture
def ends():
    with zh.Endpoint("soft0", timeout=10.0) as here, zh.Endpoint("soft0", timeout=10.0) as there:
        arena = here.empty((4, 64), "uint8")
        np.asarray(arena)[:] = 0
        yield here.connect(there.address), arena, there.empty(64).remote


def test_a_ball_that_does_not_come_back_ends_the_loop(ends) -> None:
    peer, arena, far = ends
    with pytest.raises(zh.TransferTimeout, match="did not end in time"):
        _core.bench_memory_ping_pong(peer, arena[0], far, arena[1], 10, True, 0.2)


@pytest.mark.parametrize("part", [np.s_[:, 3], np.s_[0, :0]])
def test_memory_that_cannot_be_polled_is_refused(ends, part) -> None:
    peer, arena, far = ends
    with pytest.raises(ValueError, match="contiguous, on the host, and not empty"):
        _core.bench_memory_ping_pong(peer, arena[0], far, arena[part], 1, True, 1.0)
