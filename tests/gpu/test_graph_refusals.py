"""What calls say that cannot become part of a CUDA graph, or are asked for a result."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import zerohop as zh
from graphs import GPU, captured, replay

DATA = 7  # a slot


def test_a_captured_call_has_no_result_of_its_own(sides):
    near, far = sides
    made: list[zh.Transfer] = []

    def calls() -> None:
        made.append(near.peer.write(near.memory, far.memory.remote, stream=near.stream))
        made.append(near.ep.wait_notify(DATA, stream=near.stream))

    graph = captured(near.stream, calls)
    for transfer in made:
        assert transfer.done
        with pytest.raises(zh.Error, match="has become part of a CUDA graph"):
            transfer.wait()
    with pytest.raises(zh.RouteUnavailable, match="capture has ended"):
        made[0].wait_on(far.stream)
    with pytest.raises(zh.RouteUnavailable, match="a CUDA graph waits for notification slot 7"):
        near.ep.wait_notify(DATA, stream=near.stream)
    del graph


def refusal(stream: torch.cuda.Stream, call: Callable[[], Any]) -> str:
    """The capture stays valid."""
    caught: list[str] = []
    filler = torch.zeros(1, device=GPU)

    def calls() -> None:
        filler.add_(1)  # an empty graph is warned of
        with pytest.raises(zh.RouteUnavailable) as error:
            call()
        caught.append(str(error.value))

    replay(captured(stream, calls), stream)
    torch.cuda.synchronize()
    assert int(filler) == 1
    return caught[0]


def test_what_cannot_become_part_of_a_graph_says_why(sides):
    near, far = sides
    stream = near.stream
    host, far_host = near.ep.empty(100), far.ep.empty(100)
    torch.cuda.synchronize()
    peer, remote = near.peer, far.memory.remote
    assert "cannot become part of one" in refusal(
        stream, lambda: peer.write(host, far_host.remote, stream=stream)
    )
    assert "cannot become part of one" in refusal(
        stream, lambda: peer.write(near.memory, remote, require="staged", stream=stream)
    )
    assert "reset=False" in refusal(
        stream, lambda: near.ep.wait_notify(1, reset=False, stream=stream)
    )
    rows, far_rows = (side.ep.register(torch.zeros(100, 10, device=GPU)) for side in (near, far))
    assert "more than 32 separate ranges" in refusal(
        stream, lambda: peer.write(rows[:, :5], far_rows.remote[:, :5], stream=stream)
    )


@pytest.mark.parametrize(("options", "cause"), [
    ({"p2p": True, "integrity": 1}, "integrity=1"),
    ({"p2p": False}, "cannot become part of one"),
])  # fmt: skip
def test_endpoints_that_cannot_be_captured(options, cause):
    with zh.Endpoint("soft0", **options) as ours, zh.Endpoint("soft0", **options) as theirs:
        peer = ours.connect(theirs.address)
        mine, there = (ep.register(torch.zeros(100, device=GPU)) for ep in (ours, theirs))
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        assert cause in refusal(stream, lambda: peer.write(mine, there.remote, stream=stream))
