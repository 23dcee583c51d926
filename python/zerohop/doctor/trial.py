"""Small transfers between two Endpoints, one for each route: real tests of the routes.

One side serves (`zerohop doctor --listen`): it shares a little memory of each kind it has. The other
side tests each route on it and compares the bytes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zerohop._core import Memory, Peer, RemoteMemory
from zerohop.doctor import ends
from zerohop.doctor.far_end import stay
from zerohop.doctor.finding import Finding, State
from zerohop.doctor.routes import ROUTES
from zerohop.endpoint import Endpoint
from zerohop.errors import Error, PeerLost, RouteUnavailable
from zerohop.local import Link

NBYTES = 64 << 10
TIMEOUT_S = 10.0  # for connecting and for each step
# Both Endpoints copy the last, whatever the device can do.
HOST_MEMORY, GPU_MEMORY, STAGED_MEMORY = "doctor/cpu", "doctor/cuda", "doctor/cuda/staged"


@dataclass(frozen=True)
class Outcome:
    route: str
    state: State
    evidence: str


def serve(link: Link, device: str | None) -> None:
    """The end under test, in a separate process."""
    with Endpoint(device, timeout=TIMEOUT_S, p2p=1) as endpoint:
        share(endpoint)
        stay(link, endpoint)


def share(endpoint: Endpoint) -> str:
    """Shares memory of every kind, which the endpoint keeps; returns why there is no GPU memory."""
    ends.share(endpoint)
    endpoint.share(HOST_MEMORY, endpoint.empty(NBYTES))
    try:
        for name, registration in ((GPU_MEMORY, "auto"), (STAGED_MEMORY, "staged")):
            endpoint.share(name, gpu_memory(endpoint, registration))
    except Error as error:
        return str(error)
    return ""


def gpu_memory(endpoint: Endpoint, registration: str) -> Memory:
    """Memory on this side's first GPU. Raises zh.Error."""
    return endpoint.empty(NBYTES, device="cuda:0", registration=registration)


def try_routes(endpoint: Endpoint, address: bytes, routes: Sequence[str] = ROUTES) -> list[Outcome]:
    """Connects to a counterpart and tests each route; raises zh.Error if it cannot connect."""
    return try_pair(endpoint, address, routes)[1]


def try_pair(
    endpoint: Endpoint, address: bytes, routes: Sequence[str]
) -> tuple[list[Finding], list[Outcome]]:
    """As try_routes(), and compares both ends.

    Bounded: every step has a timeout, and a lost peer ends the rest at once.
    """
    peer = endpoint.connect(address, timeout=TIMEOUT_S)
    try:
        comparison = ends.examine_ends(endpoint, peer)
        return comparison, [_try(endpoint, peer, route) for route in routes]
    finally:
        peer.close(timeout=0)


def _try(endpoint: Endpoint, peer: Peer, route: str) -> Outcome:
    try:
        begin = time.perf_counter()
        evidence = _exchange(endpoint, peer, route)
        passed = time.perf_counter() - begin
        return Outcome(route, "ok", f"{NBYTES >> 10} KiB in {passed * 1e3:.1f} ms: {evidence}")
    except (RouteUnavailable, LookupError) as error:
        return Outcome(route, "absent", str(error.args[0]))
    except PeerLost as error:
        return Outcome(route, "fail", f"the peer is gone: {error}")
    except Error as error:
        return Outcome(route, "fail", str(error))


def _exchange(endpoint: Endpoint, peer: Peer, route: str) -> str:
    """Sends a pattern over the route and back; raises if it does not arrive."""
    pattern = np.random.default_rng().integers(0, 256, NBYTES, dtype="uint8")
    back = np.zeros(NBYTES, dtype="uint8")
    far_host = peer[HOST_MEMORY]
    if route in ("host", "p2p"):
        peer.write(pattern, far_host, require=route).wait()
        peer.read(far_host, back, require=route).wait()
        evidence = _compare(pattern, back, str(peer.write(pattern, far_host, require=route).route))
        if route == "host":
            return evidence
        try:
            return f"{evidence}; {_exchange_gpus(endpoint, peer, route, 'auto')}"
        except LookupError:
            return evidence
    # Copies by soft0 itself are staged, too, and are what its users get: test both.
    ways = ["auto"] if route == "gpudirect" else _staged_ways(endpoint)
    return [_exchange_gpus(endpoint, peer, route, way) for way in ways][-1]


def _exchange_gpus(endpoint: Endpoint, peer: Peer, route: str, way: str) -> str:
    """Host to far GPU on any route, far to near GPU on the route under test, then to the host."""
    pattern = np.random.default_rng().integers(0, 256, NBYTES, dtype="uint8")
    back = np.zeros(NBYTES, dtype="uint8")
    near, far, far_host = _near_gpu(endpoint, way), _far_gpu(peer, way), peer[HOST_MEMORY]
    peer.write(pattern, far).wait()
    tried = peer.read(far, near, require=route)
    tried.wait()
    peer.write(near, far_host).wait()
    peer.read(far_host, back).wait()
    return _compare(pattern, back, str(tried.route))


def _staged_ways(endpoint: Endpoint) -> list[str]:
    return ["auto", "staged"] if endpoint.device.startswith("soft0") else ["staged"]


def _near_gpu(endpoint: Endpoint, registration: str) -> Memory:
    try:
        return gpu_memory(endpoint, registration)
    except Error as error:
        raise LookupError(f"this side has no GPU memory: {error}") from None


def _far_gpu(peer: Peer, registration: str) -> RemoteMemory:
    try:
        return peer[STAGED_MEMORY if registration == "staged" else GPU_MEMORY]
    except KeyError:
        raise LookupError("the other side has no GPU memory") from None


def _compare(sent: npt.NDArray[np.uint8], back: npt.NDArray[np.uint8], route: str) -> str:
    wrong = int(np.count_nonzero(sent != back))
    if wrong:
        raise Error(f"{wrong} of {NBYTES} bytes differ after {route}")
    return route
