"""What tests of CUDA graphs share."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import zerohop as zh

# Streams that share a hardware channel would wait for each other: more of them, before CUDA starts.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
GPU = "cuda:0"


def captured(stream: torch.cuda.Stream, calls: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    """No stream may be waiting for another one meanwhile: a capture begins with a synchronization."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        calls()
    return graph


def replay(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> None:
    with torch.cuda.stream(stream):
        graph.replay()


class Side(NamedTuple):
    ep: zh.Endpoint
    peer: zh.Peer
    array: torch.Tensor  # float64
    memory: zh.Memory
    stream: torch.cuda.Stream


@contextmanager
def two_sides() -> Iterator[tuple[Side, Side]]:
    """Two Endpoints of this process, with an array each."""
    ours = zh.Endpoint("soft0", p2p=True, timeout=20.0)
    theirs = zh.Endpoint("soft0", p2p=True, timeout=20.0)
    with ours, theirs:
        made = []
        for ep, peer in ((ours, ours.connect(theirs.address)), (theirs, theirs.accept())):
            array = torch.zeros(1000, dtype=torch.float64, device=GPU)
            made.append(Side(ep, peer, array, ep.register(array), torch.cuda.Stream(GPU)))
        torch.cuda.synchronize()
        yield made[0], made[1]
        torch.cuda.synchronize()
