"""stream= and boards for kernels where there is no CUDA driver."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zerohop as zh


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


CALLS: dict[str, Callable[[Any, Any, Any], object]] = {
    "write": lambda ep, peer, far: peer.write(np.zeros(8), far, stream=0),
    "notify": lambda ep, peer, far: peer.notify(7, 1, stream=0),
    "wait_notify": lambda ep, peer, far: ep.wait_notify(7, stream=0),
    "wait_on": lambda ep, peer, far: peer.write(np.zeros(8), far).wait_on(0),
}


@pytest.mark.skipif(has_driver(), reason="there is a CUDA driver here")
@pytest.mark.parametrize("call", CALLS)
def test_the_reason_and_the_remedy_are_reported(call):
    with zh.Endpoint("soft0", timeout=10.0) as ep, zh.Endpoint("soft0", timeout=10.0) as other:
        peer = ep.connect(other.address)
        memory = other.register(np.zeros(8))
        with pytest.raises(zh.RouteUnavailable, match=r"libcuda.*without a GPU leave stream= out"):
            CALLS[call](ep, peer, memory.remote)


@pytest.mark.skipif(has_driver(), reason="there is a CUDA driver here")
def test_a_board_for_kernels_needs_a_driver():
    with (
        zh.Endpoint("soft0", timeout=10.0) as ep,
        pytest.raises(
            zh.RouteUnavailable, match=r"kernels of cuda:1 .*libcuda.*without a GPU wait on the CPU"
        ),
    ):
        ep.device_board(7, device="cuda:1")


def test_a_board_is_for_slots_and_a_gpu_by_name():
    with zh.Endpoint("soft0", timeout=10.0) as ep:
        for device in ("cpu", "cuda", "gpu0"):
            with pytest.raises(ValueError, match=r"not on cpu|is unknown"):
                ep.device_board(7, device=device)
        with pytest.raises(TypeError, match="a device must be a str"):
            ep.device_board(7, device=0)
        for first, count in ((65536, 1), (65535, 2), (-1, 1)):
            with pytest.raises(IndexError):
                ep.device_board(first, count)
        with pytest.raises(ValueError, match="at least one slot"):
            ep.device_board(7, 0)
    with pytest.raises(zh.Error, match="closed"):
        ep.device_board(7)
