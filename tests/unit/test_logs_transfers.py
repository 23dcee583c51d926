"""What the log is told of Transfers that nobody asks for, and of what close() gives up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import zerohop as zh
from support.kept_logs import PATIENCE, Kept, keeping
from support.link import until


@pytest.fixture
def kept() -> Iterator[Kept]:
    with keeping() as handler:
        yield handler


def test_a_failure_that_the_program_never_asks_for_is_a_warning_once(kept: Kept) -> None:
    with zh.Endpoint("soft0", name="log e") as ep, zh.Endpoint("soft0", name="log f") as other:
        peer = ep.connect(other.address)
        target = other.empty(8)
        closed = target.remote
        target.close()

        def fails() -> zh.Transfer:
            transfer = peer.write(np.ones(8, "u1"), closed)
            until(lambda: transfer.done, "it has failed")
            return transfer

        raised, dropped = fails(), fails()
        with pytest.raises(zh.VerbsError, match="its grant has ended"):
            raised.wait()
        del raised
        assert kept.all_of("transfer") == []  # the other may still be asked for
        del dropped
        told = kept.next_of("transfer")
        assert told.levelno == logging.WARNING
        assert (
            "dropped it without wait(), which raises such errors: transfer with"
            in told.getMessage()
        )
        assert "its owner has closed or dropped it" in told.getMessage()
        fails()
    assert kept.all_of("transfer") == []


def test_what_an_error_cuts_off_is_not_told_apart(kept: Kept) -> None:
    with zh.Endpoint("soft0", faults="delay=50ms") as ep, zh.Endpoint("soft0", p2p=0) as other:
        peer, kept_open = ep.connect(other.address), other.empty(8)
        target = other.empty(8)
        closed = target.remote
        target.close()

        def fail() -> None:
            first = peer.write(np.ones(8, "u1"), closed)
            behind = [peer.write(np.ones(8, "u1"), kept_open.remote) for _ in range(3)]
            until(lambda: all(each.done for each in behind), "they have ended")
            assert (
                sum(row["failures"] for row in peer.stats()["routes"]) == 4
            )  # the delay: all were posted
            with pytest.raises(zh.VerbsError, match="its grant has ended"):
                first.wait()

        fail()
        assert kept.all_of("transfer") == []
        later = [peer.write(np.ones(8, "u1"), closed)]
        until(lambda: later[0].done, "it has failed")
        later.clear()
        assert "dropped it without wait()" in kept.next_of("transfer").getMessage()


def test_rights_are_no_fault_on_purpose() -> None:
    with zh.Endpoint("soft0", faults="duplicate=1") as ep, zh.Endpoint("soft0", p2p=0) as other:
        peer, target = ep.connect(other.address), other.empty(8)
        peer.write(np.ones(8, "u1"), target.remote).wait()
        assert ep.stats()["faults"]["duplicate"] > 0
        closed = target.remote
        target.close()
        with pytest.raises(zh.VerbsError, match="its grant has ended") as caught:
            peer.write(np.ones(8, "u1"), closed).wait()
        assert "on purpose" not in str(caught.value)


def test_an_end_that_comes_before_the_timeout_of_close_is_not_blamed_on_it(kept: Kept) -> None:
    with zh.Endpoint("soft0", p2p=0) as other:
        inbox = other.empty(10)
        ep = zh.Endpoint("soft0", faults="drop=1", ack_timeout=20)
        peer = ep.connect(other.address)
        peer.write(np.ones(10, "u1"), inbox.remote)
        closing = threading.Thread(target=ep.close, args=(PATIENCE,))
        closing.start()
        other.close()
        closing.join(PATIENCE)
        assert not closing.is_alive()
    assert kept.all_of("transfer") == []


def test_what_was_raised_is_not_told_again(kept: Kept) -> None:
    failing = zh.Faults(fail=1, fail_status="REM_OP_ERR")
    with zh.Endpoint("soft0", faults=failing) as ep, zh.Endpoint("soft0", p2p=0) as other:
        peer, target = ep.connect(other.address), other.empty(8)
        transfer = peer.write(np.ones(8, "u1"), target.remote)
        with pytest.raises(zh.VerbsError, match=r"faults on purpose so far, by zh.Faults: fail 1"):
            transfer.wait()
        del transfer
    assert kept.all_of("transfer") == []


def test_what_close_cuts_off_is_a_warning(kept: Kept) -> None:
    with zh.Endpoint("soft0", p2p=0) as other:
        inbox = other.empty(10)
        ep = zh.Endpoint("soft0", faults="drop=1", ack_timeout=20)
        peer = ep.connect(other.address)
        peer.write(np.ones(10, "u1"), inbox.remote)
        ep.close(0.1)
        told = kept.next_of("transfer")
        assert told.levelno == logging.WARNING
        assert "close() gave up 1 transfer that" in told.getMessage()
    assert kept.all_of("transfer") == []
