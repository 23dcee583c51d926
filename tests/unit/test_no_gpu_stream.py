"""stream= where there is no CUDA driver."""

from __future__ import annotations

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
    "wait_notify": lambda ep, peer, far: ep.wait_notify(7, stream=0),
    "wait_on": lambda ep, peer, far: peer.write(np.zeros(8), far).wait_on(0),
}


@pytest.mark.skipif(has_driver(), reason="there is a CUDA driver here")
@pytest.mark.parametrize("call", CALLS)
def test_the_reason_and_the_remedy_are_told(call: str) -> None:
    with zh.Endpoint("soft0", timeout=10.0) as ep, zh.Endpoint("soft0", timeout=10.0) as other:
        peer = ep.connect(other.address)
        far = other.register(np.zeros(8)).remote
        with pytest.raises(zh.RouteUnavailable, match=r"libcuda.*without a GPU leave stream= out"):
            CALLS[call](ep, peer, far)
