"""Many rounds of data and notification between kernels; how fast they are is for `zerohop bench gda`."""

import time
from collections.abc import Iterator
from typing import Any

import cupy
import numpy as np
import pytest
import torch
from device_kernels import fetch
from test_device_queue import Ends, both_ends

u32, u64 = np.uint32, np.uint64

pytestmark = pytest.mark.skipif(
    torch.cuda.device_count() < 2,
    reason="with one GPU it is the turns of the two processes that are measured",
)


@pytest.fixture(params=["gpu", "both"], scope="module")
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    with both_ends("cuda:1", hears=request.param) as ends:
        yield ends


@pytest.mark.parametrize(("blocks", "nbytes", "rounds"), [(64, 64, 160_000), (64, 4096, 8000)])
@pytest.mark.parametrize("ends", ["gpu", "both"], indirect=True)
def test_no_notification_before_its_data(
    ends: Ends, rows: Any, blocks: int, nbytes: int, rounds: int
) -> None:
    """The first: 10**7 rounds and more."""
    patience = 20_000_000_000
    ends.far.begin(
        f"bad = cupy.zeros(1, 'uint64'); status.fill(0);"
        f"kernels.check_rounds({blocks}, 64, queue.value, board.value, u32({rounds}), u32({nbytes}), u32(100),"
        f" u64({patience}), status, bad); answer = (int(fetch(status)[0]), int(bad[0]))"
    )
    ends.status.fill(0)
    began = time.monotonic()
    ends.kernels.write_rounds(
        blocks,
        64,
        ends.queue.value,
        ends.board.value,
        u32(rounds),
        u32(nbytes),
        u32(100),
        u64(patience),
        ends.status,
    )
    cupy.cuda.runtime.deviceSynchronize()
    took = time.monotonic() - began
    assert int(fetch(ends.status)[0]) == 0
    assert ends.far.finish() == (0, 0)
    rows.add(
        "kernels: rounds of data, notification and answer",
        blocks=blocks,
        nbytes=nbytes,
        rounds=blocks * rounds,
        seconds=took,
    )
