"""Exchange arrays between processes over RDMA queue pairs, on any machine."""

from zerohop import verbs
from zerohop._core import Memory, Peer, RemoteMemory, Route, Transfer
from zerohop.endpoint import Endpoint
from zerohop.errors import (
    AuthenticationError,
    CudaError,
    Error,
    PeerLost,
    ProtocolError,
    RegistrationError,
    RouteUnavailable,
    TransferTimeout,
    VerbsError,
)
from zerohop.topology import Topology, topology

__version__ = "0.1.0"

__all__ = [
    "AuthenticationError",
    "CudaError",
    "Endpoint",
    "Error",
    "Memory",
    "Peer",
    "PeerLost",
    "ProtocolError",
    "RegistrationError",
    "RemoteMemory",
    "Route",
    "RouteUnavailable",
    "Topology",
    "Transfer",
    "TransferTimeout",
    "VerbsError",
    "topology",
    "verbs",
]
