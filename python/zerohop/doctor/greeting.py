"""What a command that listens does until it is interrupted: it says who came, as serving needs no help from it."""

from __future__ import annotations

import sys

from zerohop.endpoint import Endpoint
from zerohop.errors import TransferTimeout

__all__ = ["greet"]

LOOK_S = 1.0


def greet(endpoint: Endpoint) -> None:
    """To stderr: what it prints to stdout, its address, is for the other end. Raises KeyboardInterrupt alone."""
    while True:
        try:
            peer = endpoint.accept(timeout=LOOK_S)
        except TransferTimeout:
            continue  # gives Ctrl-C its chance
        print(f"{peer.name} on {peer.host} connected", file=sys.stderr)
