"""Small transfers between two Endpoints, one for each route: real tests of the routes.

One side serves (`zerohop doctor --listen`): it shares memory as for `zerohop verify`. The other side tests each route on it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerohop._core import Peer
from zerohop.doctor import ends
from zerohop.doctor.far_end import stay
from zerohop.doctor.finding import Finding, State
from zerohop.endpoint import Endpoint
from zerohop.errors import Error, PeerLost, RouteUnavailable
from zerohop.local import Link
from zerohop.verify import target
from zerohop.verify.ways import GpuWay, Way

NBYTES = 64 << 10
TIMEOUT_S = 10.0  # for connecting and for each step


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
    return target.share(endpoint, NBYTES)


def try_pair(
    endpoint: Endpoint, address: bytes, routes: Sequence[str]
) -> tuple[list[Finding], list[Outcome]]:
    """Connects to a counterpart, compares both ends and tests each route; raises zh.Error if it cannot connect.

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
    if route == "host":
        return _through(Way(endpoint, peer, route))
    if route == "p2p":
        evidence = _through(Way(endpoint, peer, route))
        try:
            return f"{evidence}; {_through(GpuWay(endpoint, peer, route, 'gpudirect'))}"
        except LookupError:
            return evidence
    # Copies by soft0 itself are staged, too, and are what its users get: test both.
    both = route == "staged" and endpoint.device.startswith("soft0")
    memories = ("gpudirect", "staged") if both else (route,)
    return [_through(GpuWay(endpoint, peer, route, memory)) for memory in memories][-1]


def _through(way: Way) -> str:
    pattern = np.random.default_rng().integers(0, 256, NBYTES, dtype="uint8")
    way.put(pattern, 0, 0)
    wrong = int(np.count_nonzero(pattern != way.get(0, NBYTES, 0)))
    if wrong:
        raise Error(f"{wrong} of {NBYTES} bytes differ after {way.used}")
    return str(way.used)
