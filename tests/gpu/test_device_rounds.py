"""Many rounds of data and notification between kernels: the first 10**7 and more."""

import pytest
import torch
from test_device_queue import both_ends, write_rounds

pytestmark = pytest.mark.skipif(
    torch.cuda.device_count() < 2, reason="with one GPU the two processes take turns"
)


@pytest.fixture(params=["gpu", "both"], scope="module")
def ends(request):
    with both_ends("cuda:1", hears=request.param) as ends:
        yield ends


@pytest.mark.parametrize(("blocks", "nbytes", "rounds"), [(64, 64, 160_000), (64, 4096, 8000)])
def test_no_notification_before_its_data(ends, blocks, nbytes, rounds):
    write_rounds(ends, blocks, rounds, nbytes, patience=20_000_000_000)
