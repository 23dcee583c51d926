"""The end under test: it shares memory and serves, in this process or in another one."""

from __future__ import annotations

import numpy as np

from zerohop.doctor.far_end import greet, stay
from zerohop.endpoint import Endpoint
from zerohop.errors import Error
from zerohop.local import Link

TIMEOUT_S = 30.0  # for connecting and for each transfer
# Names by route; both Endpoints copy the last, whatever the device can do.
NAMES = {
    "host": "verify/host",
    "p2p": "verify/p2p",
    "gpudirect": "verify/gpudirect",
    "staged": "verify/staged",
}
NO_GPU = "verify/no-gpu"  # why there is no GPU memory, in UTF-8


def share(endpoint: Endpoint, nbytes: int) -> str:
    """Shares `nbytes` for each route, which the endpoint keeps; returns why there is no GPU memory."""
    endpoint.share(NAMES["p2p"], endpoint.empty(nbytes))
    endpoint.share(NAMES["host"], endpoint.register(np.zeros(nbytes, np.uint8), cache=False))
    try:
        for route, registration in (("gpudirect", "auto"), ("staged", "staged")):
            # Twice the size: data that returns through the near GPU goes into the second half.
            memory = endpoint.empty(2 * nbytes, device="cuda:0", registration=registration)
            endpoint.share(NAMES[route], memory)
    except Error as error:
        reason = str(error)
        said = np.frombuffer(reason.encode(), np.uint8).copy()
        endpoint.share(NO_GPU, endpoint.register(said, cache=False))
        return reason
    return ""


def _endpoint(device: str | None) -> Endpoint:
    """For one tester at a time: writes of another one would look like memory faults."""
    return Endpoint(device, timeout=TIMEOUT_S, p2p=1, integrity=1, max_peers=1)


def listen(device: str | None, nbytes: int) -> None:
    """Prints an address and serves testers that have it, until interrupted."""
    with _endpoint(device) as endpoint:
        greet(endpoint, share(endpoint, nbytes))


def serve(link: Link, nbytes: int, device: str | None) -> None:
    """As listen(), in a worker process next to the tester's."""
    with _endpoint(device) as endpoint:
        share(endpoint, nbytes)
        stay(link, endpoint)
