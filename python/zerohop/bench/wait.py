"""`zerohop bench wait`: how long two processes, and the ranks of a job, wait for each other, by placement."""

from __future__ import annotations

import os
import select
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import zerohop as zh
from zerohop._world.mpi import GatheredStore
from zerohop.bench.loops import Call, Job, arrays_of, ping_pong
from zerohop.bench.pair import connect_tcp, entry_of
from zerohop.bench.peers import mpi, torch
from zerohop.bench.placement import APART, FREE, PLACEMENTS, TOGETHER
from zerohop.bench.plan import FULL_SECONDS, KIB, MIB, Options, Plan, Step
from zerohop.bench.rows import OURS, Row
from zerohop.bench.runner import Entry, Suite
from zerohop.bench.tables import Part, Table
from zerohop.bench.targets import Of, Target, Verdict, verdicts
from zerohop.bench.workers import Player, Workers
from zerohop.host import human_bytes
from zerohop.local import Link

QUICK_SECONDS = 0.1  # one or two time slices per rank: several ranks share a core
NBYTES = 8
LATENCY, ON_ONE_CORE = "latency", "latency on one core"
CALLS = {  # calls that depend on the size, with their sizes
    "barrier": (0,),
    "exchange": (NBYTES,),
    "all_to_all": (NBYTES,),
    "broadcast": (NBYTES, 64 * KIB),
    "all_gather": (NBYTES, 64 * KIB),
}
JOBS = (2, 4, 8)  # ranks
SOFT = "soft0"
YIELDS = {"OMPI_MCA_mpi_yield_when_idle": "1"}
MPI_SETTINGS = " ".join((*(f"{name}={value}" for name, value in YIELDS.items()), mpi.SETTINGS))
POLLS = 8  # polls of a socket before each sched_yield
POLLED_S = 200e-6  # then a wait blocks
# "on one core: p2p within 1.5 of a pipe ping-pong of two processes pinned there, soft0 within 1.5 of a bare TCP one
# under the same policy"
ONE_CORE = tuple(
    Target(Of(ON_ONE_CORE, "p50", ours), 1.5, Of(ON_ONE_CORE, "p50", theirs))
    for ours, theirs in ((f"{OURS} p2p", "pipe"), (f"{OURS} {SOFT}", "tcp yielding"))
)
# "barrier, exchange and collectives within 1.5 of Open MPI with mpi_yield_when_idle, and ahead of gloo"
FREE_JOBS = (("mpi", 1.5), ("gloo", 1.0))


def make(options: Options) -> Suite:
    """The ping-pong in every placement; the jobs unpinned, unless all placements are requested."""
    entries = _pairs(options)
    turns = 1 if options.quick else 2
    steps = [Step(LATENCY, NBYTES, turns)]
    if options.everything_placed or options.placement == FREE:
        for call, sizes in CALLS.items():
            steps += [Step(f"{call}_{n}", nbytes, turns) for nbytes in sizes for n in JOBS]
        for ranks in JOBS:
            world, tests = Workers(OURS, ranks, WorldJob, options.device), job_tests(ranks)
            entries.append(Entry(OURS, world, tests=tests, label=f"{OURS}, {ranks} ranks"))
            entries += theirs(options, ranks, tests, f", {ranks} ranks")
    seconds = QUICK_SECONDS if options.quick else FULL_SECONDS
    return Suite("wait", steps, entries, plan=Plan(seconds=seconds), make_part=report)


def job_tests(ranks: int) -> dict[str, str]:
    """Maps the name of a test to its call."""
    return {f"{call}_{ranks}": call for call in CALLS}


def _pairs(options: Options) -> list[Entry]:
    tests = {LATENCY: LATENCY}
    p2p = entry_of("host", "p2p", options.device, MIB, ("python",), p2p=1)
    soft = entry_of(SOFT, SOFT, SOFT, MIB, ("python",))
    found = [replace(p2p, tests=tests), replace(soft, tests=tests, needed=True)]
    if "pipe" in options.peers:
        found.append(Entry("pipe", Workers("pipe", 2, Pipes), tests=tests))
    if "tcp" in options.peers:
        tcp = Workers("tcp", 2, Tcp)
        found.append(Entry("tcp", tcp, tests=tests))
        found.append(Entry("tcp yielding", tcp, tests={LATENCY: "yielding_latency"}))
    return found + theirs(options, 2, {LATENCY: "send_latency"})


def theirs(options: Options, ranks: int, tests: Mapping[str, str], label: str = "") -> list[Entry]:
    """The jobs of peers."""
    peers = {
        "mpi": (mpi.contender(ranks, 0, YIELDS), MPI_SETTINGS),
        "gloo": (Workers("gloo", ranks, torch.Gloo), torch.SETTINGS),
    }
    return [
        Entry(name, contender, tests=tests, settings=settings, label=f"{name}{label}")
        for name, (contender, settings) in peers.items()
        if name in options.peers
    ]


def who(row: Row) -> str:
    """The name in the tables; for our ping-pong it depends on the route."""
    if row.impl != OURS or row.test != LATENCY:
        return row.impl
    return f"{OURS} {'p2p' if row.route == 'p2p' else SOFT}"


def report(rows: Sequence[Row]) -> Part:
    """The ping-pong by placement; the calls of a job by contender, one table per placement."""
    title = "8 B between two processes, half a round trip, from Python, by where the ends run"
    tables = [
        Table(
            title,
            "p50",
            lambda row: who(row) if row.test == LATENCY else None,
            lambda row: row.placement,
        )
    ]
    for place in PLACEMENTS:
        shared = ", or several on one" if place == APART else ""
        title = f"calls of all ranks; ends: {place}{shared}"
        tables.append(Table(title, "p50", partial(_job_line, place)))
    one_core = [
        replace(row, test=ON_ONE_CORE, impl=who(row))
        for row in rows
        if (row.test, row.placement) == (LATENCY, TOGETHER)
    ]
    judged = [found for found in verdicts(ONE_CORE, one_core) if found.met is not None]
    return Part("", rows, tables, [*judged, *_jobs(rows)])


def _job_line(placement: str, row: Row) -> str | None:
    if row.test == LATENCY or row.placement != placement:
        return None
    call, _, ranks = row.test.rpartition("_")
    size = f" {human_bytes(row.nbytes)}" if row.nbytes else ""
    return f"{call}{size}, {ranks} ranks"


def _jobs(rows: Sequence[Row]) -> Iterator[Verdict]:
    """For each call the worst job."""
    values = {
        (row.test, row.nbytes, row.impl): row.value
        for row in rows
        if row.test != LATENCY and row.placement == FREE and row.metric == "p50"
    }
    for impl, bound in FREE_JOBS:
        worst: dict[tuple[str, int], tuple[float, str]] = {}
        for (test, nbytes, who), ours in values.items():
            theirs = values.get((test, nbytes, impl))
            if who == OURS and theirs:
                call, _, ranks = test.rpartition("_")
                found = ours / theirs, ranks
                worst[call, nbytes] = max(worst.get((call, nbytes), found), found)
        for (call, nbytes), (ratio, ranks) in worst.items():
            size = f" {nbytes} B" if nbytes else ""
            yield Verdict(
                f"{call}{size} / {impl}, free <= {bound:g}",
                f"{ratio:.2f} with {ranks} ranks",
                ratio <= bound,
            )


class WorldJob(Job):
    """One rank of a World, with all defaults. p2p: None for the default."""

    def __init__(self, link: Link, device: str | None, p2p: int | None = None) -> None:
        self.rank, self.size = link.rank, link.size
        self._link = link
        store = GatheredStore()
        more: dict[str, Any] = {} if p2p is None else {"p2p": p2p}
        self._world = zh.World(store, self.rank, self.size, device=device, **more)
        for known in link.exchange(store.known):
            store.known.update(known)
        self._world.barrier()

    def facts(self) -> dict[str, Any]:
        world = self._world
        memory = world.endpoint.empty(NBYTES)
        far = (self.rank + 1) % self.size
        route = world.peer(far).route(memory, self._link.exchange(memory.remote)[far])
        return {"device": world.endpoint.device, "route": route.kind, "reason": route.reason}

    def call(self, test: str, nbytes: int) -> Call:
        world, size = self._world, self.size
        # Written, as a program's arrays are: pages that nobody wrote are all one page of zeros.
        mine, other, all_of_mine, gathered = (
            np.full(each, 0, np.uint8) for each in arrays_of(test, size, nbytes)
        )
        floats = mine.view("f4")
        to, source = (self.rank + 1) % size, (self.rank - 1) % size
        calls: dict[str, Call] = {
            "barrier": lambda number: world.barrier(),
            "exchange": lambda number: world.send_recv(to=to, array=mine, from_=source, out=other),
            "all_to_all": lambda number: world.all_to_all(gathered, all_of_mine),
            "broadcast": lambda number: world.broadcast(mine, root=number % size),
            "all_gather": lambda number: world.all_gather(gathered, mine),
            "all_reduce": lambda number: world.all_reduce(floats),
            "reduce_scatter": lambda number: world.reduce_scatter(floats, all_of_mine.view("f4")),
        }
        return calls[test]

    def close(self) -> None:
        self._world.close()


class Pipes(Player):
    """Two named pipes, because the processes are started separately."""

    def __init__(self, link: Link) -> None:
        self._first = link.rank == 0
        with tempfile.TemporaryDirectory(prefix="zerohop-bench-") as folder:
            place = link.exchange(folder)[0]
            names = [f"{place}/{rank}" for rank in range(2)]
            if self._first:
                for name in names:
                    os.mkfifo(name)
            link.exchange(None)
            # Read and write: opening only one end would wait for the other.
            self._pipes = [os.open(name, os.O_RDWR) for name in names]
            link.exchange(None)  # the folder can be removed

    def latency(self, nbytes: int, times: int) -> Sequence[float]:
        out, back = self._pipes if self._first else self._pipes[::-1]
        send, receive = partial(os.write, out, bytes(nbytes)), partial(os.read, back, nbytes)
        return ping_pong(self._first, send, receive, times)

    def close(self) -> None:
        for pipe in self._pipes:
            os.close(pipe)


class Tcp(Player):
    """`latency` waits in recv(); `yielding_latency` polls first, and yields the core after every POLLS."""

    def __init__(self, link: Link) -> None:
        self._first = link.rank == 0
        self._socket = connect_tcp(link)

    def latency(self, nbytes: int, times: int) -> Sequence[float]:
        send = partial(self._socket.send, bytes(nbytes))
        receive = partial(self._socket.recv_into, bytearray(nbytes))
        return ping_pong(self._first, send, receive, times)

    def yielding_latency(self, nbytes: int, times: int) -> Sequence[float]:
        send = partial(self._socket.send, bytes(nbytes))
        take = partial(self._socket.recv_into, bytearray(nbytes))
        look = _looks(self._socket)

        def receive() -> None:
            until = time.perf_counter() + POLLED_S
            while time.perf_counter() < until:
                for _ in range(POLLS):
                    if look():
                        take()
                        return
                os.sched_yield()
            take()

        return ping_pong(self._first, send, receive, times)

    def close(self) -> None:
        self._socket.close()


def _looks(connection: socket.socket) -> Callable[[], object]:
    """Returns whether data can be read, without an exception each time there is none."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return partial(poll.poll, 0)
