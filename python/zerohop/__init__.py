"""Exchange arrays between processes over RDMA queue pairs, on any machine."""

from typing import TYPE_CHECKING

from zerohop import verbs
from zerohop._core import (
    DeviceBoard,
    DeviceQueue,
    Grant,
    Memory,
    Peer,
    RemoteMemory,
    Route,
    Transfer,
    crc32c,
    keep_times,
)
from zerohop._endpoint.headers import compile_options, include_dir
from zerohop._endpoint.rails import local_gpu
from zerohop.endpoint import Endpoint
from zerohop.errors import (
    AuthenticationError,
    CudaError,
    Error,
    IntegrityError,
    PeerLost,
    ProtocolError,
    RegistrationError,
    RouteUnavailable,
    TransferTimeout,
    VerbsError,
)
from zerohop.observe.metrics import prometheus
from zerohop.topology import Topology, topology

if TYPE_CHECKING:
    from zerohop import aio
    from zerohop._endpoint.faults import Faults
    from zerohop.collectives import Collective
    from zerohop.observe.recording import record
    from zerohop.segment import Segment
    from zerohop.world import World
else:
    # Imported on first use: asyncio costs as much as all the rest of this import.
    _PACKAGES = ("aio", "collectives", "notebook", "scale")
    _LATER = {
        "Collective": "collectives",
        "Faults": "_endpoint.faults",
        "Segment": "segment",
        "World": "world",
        "record": "observe.recording",
    }

    def __getattr__(name):
        from importlib import import_module

        if name in _PACKAGES:
            return import_module(f"zerohop.{name}")
        if name in _LATER:
            return getattr(import_module(f"zerohop.{_LATER[name]}"), name)
        raise AttributeError(f"module 'zerohop' has no attribute {name!r}")

    def __dir__():
        return [*globals(), *_PACKAGES, *_LATER]


__version__ = "0.1.0"

__all__ = [
    "AuthenticationError",
    "Collective",
    "CudaError",
    "DeviceBoard",
    "DeviceQueue",
    "Endpoint",
    "Error",
    "Faults",
    "Grant",
    "IntegrityError",
    "Memory",
    "Peer",
    "PeerLost",
    "ProtocolError",
    "RegistrationError",
    "RemoteMemory",
    "Route",
    "RouteUnavailable",
    "Segment",
    "Topology",
    "Transfer",
    "TransferTimeout",
    "VerbsError",
    "World",
    "aio",
    "compile_options",
    "crc32c",
    "include_dir",
    "keep_times",
    "local_gpu",
    "prometheus",
    "record",
    "topology",
    "verbs",
]
