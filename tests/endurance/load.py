"""Many of everything at once: peers, transfers, threads, registrations."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import zerohop as zh
from support.link import Link
from support.partner import Partners
from support.session import Remote
from zerohop.scale import Job, weigh

from endurance.counts import counts, settled

PATIENCE = 120.0  # seconds, for what takes long because there is so much of it


def rows(partners: Partners, scale: float) -> Iterator[dict[str, Any]]:
    """scale: 1 for the figures that are promised; less for a quick look."""
    yield thousand_peers(partners, int(1000 * scale))
    for p2p in (False, True):
        os.environ["ZEROHOP_P2P"] = str(int(p2p))
        route = {"route": "p2p" if p2p else "soft0"}
        yield outstanding(partners, int(10_000 * scale)) | route
        yield hundred_threads(partners, 100, int(200 * scale)) | route
        yield fairness(partners, 16, seconds=3.0 * scale) | route
    yield registrations(int(1_000_000 * scale))


def hold_endpoints(ep: zh.Endpoint, peer: zh.Peer | None, link: Link, count: int) -> None:
    """So many Endpoints, each with memory that is shared by name."""
    others = [zh.Endpoint("soft0", name=f"other {n}", p2p=False) for n in range(count)]
    kept = [other.empty(64, "uint8") for other in others]
    for other, memory in zip(others, kept, strict=True):
        other.share("memory", memory)
    link.send([other.address for other in others])
    link.recv(PATIENCE)
    link.send([int(np.asarray(memory).sum()) for memory in kept])
    for other in others:
        other.close()


def thousand_peers(partners: Partners, count: int) -> dict[str, Any]:
    """One Endpoint with so many Peers: writes to each, reads from each, and all of it is given back."""
    os.environ["ZEROHOP_P2P"] = "0"
    remote = Remote(partners, "process", "soft0")
    with remote(hold_endpoints, count, deadline=PATIENCE) as session:
        addresses = session.link.recv(PATIENCE)
        visit(addresses[:2])  # what is made once is there from here on
        before = counts()
        each = visit(addresses)
        left = settled(before).beyond(before)
        session.link.send("written")
        right = session.link.recv(PATIENCE) == [64] * count
    model = modelled(count)
    return {
        "what": "peers of one Endpoint",
        "held": count,
        **each,
        **{f"{name}_by_model": figure for name, figure in model.items()},
        "left": left,
        # The allocator keeps what was in use, in heaps of 64 MiB of addresses (glibc); the buffers of 1000 Peers are
        # mapped, 870 MB, and would be seen.
        "holds": right
        and (each["fds_each"] - model["fds_each"]) * count < 4  # some come with the first Peer
        and abs(each["nbytes_each"] / model["nbytes_each"] - 1) < 0.25
        and left["fds"] <= 0
        and left["threads"] <= 0
        and left["mapped_nbytes"] < 512 << 20,
    }


def modelled(count: int) -> dict[str, float]:
    """What `zerohop scale` says of one of so many."""
    none, all_ = (weigh(Job(count + 1, peers, on="soft0")) for peers in (0, count))
    return {
        "connect_ms": (all_.connect_s or 0) / count * 1e3,
        "nbytes_each": (all_.idle_nbytes - none.idle_nbytes) / count,
        "fds_each": (all_.descriptors - none.descriptors) / count,
    }


def visit(addresses: Sequence[bytes]) -> dict[str, float]:
    """Connects to all of them, writes to each and reads it back; what a Peer takes."""
    count = len(addresses)
    with zh.Endpoint("soft0", name="hub", p2p=False, timeout=PATIENCE) as hub:
        alone, begun = counts(), time.monotonic()
        peers = [hub.connect(address) for address in addresses]
        connected = time.monotonic()
        source, sink = np.ones(64, np.uint8), hub.empty((count, 64), "uint8")
        targets = [peer.lookup("memory") for peer in peers]
        writes = [peer.write(source, far) for peer, far in zip(peers, targets, strict=True)]
        for write in writes:
            write.wait()
        for n, (peer, far) in enumerate(zip(peers, targets, strict=True)):
            peer.read(far, sink[n]).wait()
        held = counts().beyond(alone)
        if np.asarray(sink).sum() != 64 * count:
            raise AssertionError("what was read is not what was written")
    return {
        "connect_ms": (connected - begun) / count * 1e3,
        "nbytes_each": held["nbytes"] / count,
        "fds_each": held["fds"] / count,
    }


def answer_all(ep: zh.Endpoint, peer: zh.Peer, link: Link, count: int) -> None:
    link.recv(PATIENCE)
    sends = [peer.send(np.full(16, n, np.uint64), tag=n) for n in range(count)]
    for send in sends:
        send.wait()


def outstanding(partners: Partners, count: int) -> dict[str, Any]:
    """So many receives that wait at once, in an order of their own; each gets what is its."""
    with Remote(partners, "process", "soft0")(
        answer_all, count, deadline=PATIENCE, timeout=PATIENCE
    ) as session:
        sinks = np.zeros((count, 16), np.uint64)
        before = counts()
        with session.ep.register(sinks) as memory:
            pending = {n: session.peer.recv(memory[n], tag=n) for n in reversed(range(count))}
            held = counts().beyond(before)
            session.link.send("go")
            for transfer in pending.values():
                transfer.wait()
        right = bool((sinks == np.arange(count, dtype=np.uint64)[:, None]).all())
    return {
        "what": "transfers outstanding",
        "held": count,
        "nbytes_each": held["nbytes"] // count,
        "holds": right,
    }


def keep_words(ep: zh.Endpoint, peer: zh.Peer, link: Link, threads: int) -> None:
    words = ep.empty((threads, 512), "uint64")
    np.asarray(words)[:] = 0
    ep.share("words", words)
    link.recv(PATIENCE)
    link.send(np.asarray(words).copy())


def hundred_threads(partners: Partners, threads: int, rounds: int) -> dict[str, Any]:
    """Threads that write, read back and add by one Endpoint, each in a place of its own."""
    errors: list[BaseException] = []

    def work(place: int, target: zh.RemoteMemory) -> None:
        try:
            _rounds(session.ep, session.peer, target, place, rounds)
        except BaseException as error:  # noqa: BLE001  reported below
            errors.append(error)

    with Remote(partners, "process", "soft0")(
        keep_words, threads, deadline=PATIENCE, timeout=PATIENCE
    ) as session:
        words = session.peer.lookup("words")
        begun = time.monotonic()
        workers = [threading.Thread(target=work, args=(n, words[n])) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(PATIENCE)
        took = time.monotonic() - begun
        stuck = sum(worker.is_alive() for worker in workers)
        session.link.send("show")
        seen = session.link.recv(PATIENCE)
    right = all((seen[n, 1:] == rounds * 1000 + n).all() for n in range(threads))
    counted = bool((seen[:, 0] == rounds).all())
    return {
        "what": "threads of one Endpoint",
        "held": threads,
        "operations_per_s": 3 * threads * rounds / took,
        "errors": [repr(error) for error in errors],
        "holds": right and counted and not errors and not stuck,
    }


def _rounds(
    ep: zh.Endpoint, peer: zh.Peer, target: zh.RemoteMemory, place: int, rounds: int
) -> None:
    source, sink = ep.empty(511, "uint64"), ep.empty(511, "uint64")
    for turn in range(1, rounds + 1):
        np.asarray(source)[:] = turn * 1000 + place
        peer.write(source, target[1:]).wait()
        peer.fetch_add(target[0], 1).wait()
        peer.read(target[1:], sink).wait()
        if not (np.asarray(sink) == turn * 1000 + place).all():
            raise AssertionError(f"thread {place} reads what it has not written")


def write_on(ep: zh.Endpoint, peer: zh.Peer, link: Link, nbytes: int) -> None:
    """Writes as fast as it may until it is asked to stop; says how many."""
    source, target = ep.empty(nbytes), peer.lookup("sink")
    stop = threading.Event()
    done = [0]

    def work() -> None:
        while not stop.is_set():
            transfers = [peer.write(source, target) for _ in range(16)]
            for transfer in transfers:
                transfer.wait()
            done[0] += len(transfers)

    link.meet("ready", PATIENCE)
    worker = threading.Thread(target=work)
    worker.start()
    link.recv(PATIENCE)
    stop.set()
    worker.join()
    link.send(done[0])


def fairness(partners: Partners, peers: int, seconds: float) -> dict[str, Any]:
    """So many peers that write to one Endpoint as fast as they may, and what each gets done.

    Jain's index is 1 where all get the same, 1 / peers where one gets all (Jain, Chiu, Hawe 1984).
    """
    nbytes = 64 << 10
    p2p = os.environ["ZEROHOP_P2P"] == "1"
    with zh.Endpoint("soft0", p2p=p2p, timeout=PATIENCE) as hub, ExitStack() as stack:
        hub.share("sink", hub.empty(nbytes))
        remote = Remote(partners, "process", "soft0")
        sessions = [
            stack.enter_context(remote(write_on, nbytes, endpoint=hub, deadline=PATIENCE))
            for _ in range(peers)
        ]
        for session in sessions:
            session.link.meet("ready", PATIENCE)
        threading.Event().wait(seconds)  # the time of the measurement
        for session in sessions:
            session.link.send("stop")
        done = np.array([session.link.recv(PATIENCE) for session in sessions], float)
    index = float(done.sum() ** 2 / (len(done) * (done**2).sum()))
    return {
        "what": "peers that write to one",
        "held": peers,
        "jain_index": index,
        "least_of_mean": float(done.min() / done.mean()),
        "holds": index > 0.8,
    }


def registrations(count: int) -> dict[str, Any]:
    """Registered and given back, one after the other."""
    array = np.zeros(1 << 16, np.uint8)
    with zh.Endpoint("soft0") as ep:
        for _ in range(1000):
            ep.register(array).close()
        before = counts()
        begun = time.monotonic()
        for n in range(count):
            ep.register(array[n & 0xFFF :]).close()
        took = time.monotonic() - begun
        left = counts().beyond(before)
    return {
        "what": "registrations and releases",
        "held": count,
        "microseconds_each": took / count * 1e6,
        "left": left,
        "holds": left["fds"] == 0 and left["threads"] == 0 and left["nbytes"] < 8 << 20,
    }
