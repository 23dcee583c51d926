"""Many rounds of data and notification between kernels; how fast they are is for `zerohop bench gda`."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from test_device_queue import Ends, both_ends, write_rounds

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
    began = time.monotonic()
    write_rounds(ends, blocks, rounds, nbytes, patience=20_000_000_000)
    took = time.monotonic() - began
    rows.add(
        "kernels: rounds of data, notification and answer",
        blocks=blocks,
        nbytes=nbytes,
        rounds=blocks * rounds,
        seconds=took,
    )
