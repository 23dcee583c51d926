"""A process with one Endpoint and many Peers, which counts what those take: `python -m support.hub`.

It reads a dict of keywords and a list of addresses (hexadecimal), each a line of JSON, and prints what the Peers beyond
the first few have added, and what all have registered. At the next line it ends.
"""

import json
import resource
import sys
from typing import Any

import numpy as np
import zerohop as zh
from endurance.counts import counts

FIRST = 5  # Peers, with which comes what all of them share
DESCRIPTORS = 4096


def take(options: dict[str, Any], addresses: list[bytes], *, used: bool) -> dict[str, Any]:
    """used: whether each Peer's message buffers have been filled."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))
    with zh.Endpoint("soft0", name="hub", p2p=0, timeout=60.0, **options) as hub:

        def add(some: list[bytes]) -> list[zh.Peer]:
            peers = [hub.connect(address) for address in some]
            for peer in peers:
                peer.notify(0, 1).wait()  # answered: the connection of its queue pair is there, too
            if used:
                for peer in peers:
                    fill(peer, options)
            return peers

        peers = add(addresses[:FIRST])
        before = counts()
        peers += add(addresses[FIRST:])
        beyond = counts().beyond(before)
        words = sum(rail["nbytes_registered"] for peer in peers for rail in peer.stats()["rails"])
        beyond["registered_nbytes"] = words + hub.stats()["nbytes_registered"]
        print(json.dumps({"peers": len(peers) - FIRST, **beyond}), flush=True)
        sys.stdin.readline()
    return beyond


def messages(options: dict[str, Any]) -> int:
    """So many each way use all buffers of both ends."""
    return 2 * options["message_slots"] + 8


def fill(peer: zh.Peer, options: dict[str, Any]) -> None:
    """Sends and is sent messages that fill all of its buffers: the other end sends back what it gets."""
    nbytes, count = options["message_bytes"], messages(options)
    out, sink = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    for _ in range(count):
        peer.send(out, tag=1)
        peer.recv(sink, tag=2).wait()


if __name__ == "__main__":
    reported = json.loads(sys.stdin.readline())
    take(
        reported["options"],
        [bytes.fromhex(each) for each in reported["addresses"]],
        used=reported["used"],
    )
