"""The peer "mpi": two ranks of mpi4py that mpirun starts, and that are given their orders over a socket.

By a socket so that they sleep in between: a rank that waits in MPI takes a whole core. An order is a line of
JSON, [test, nbytes, times]; so is each rank's answer: seconds, a list of them, or {"error": ...}.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import zerohop
from zerohop.bench.peer import PeerFailed
from zerohop.bench.plan import Order
from zerohop.bench.turns import Found, paced

LAUNCHERS = ("mpirun.openmpi", "mpirun.mpich", "mpirun", "mpiexec")
ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")  # as in a container
SIZE = 2
EXIT_S = 10.0
LOOK_S = 0.1  # between two looks whether mpirun still lives, while its ranks are awaited


class Channel(NamedTuple):
    """To one rank. Orders go out unbuffered: closing sends nothing, which a dead rank would refuse."""

    orders: socket.socket
    answers: BinaryIO


class Mpi:
    """A Player. bound: of any one answer, the start of the ranks included."""

    name = "mpi"

    def __init__(self, bound: float, arena_nbytes: int) -> None:
        self._bound = bound
        self._arena_nbytes = arena_nbytes
        self._open = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._server: socket.socket | None = None
        self._said: Path | None = None  # what the ranks and the launcher print
        self._ranks: list[Channel] = []

    def start(self) -> None:
        launcher = _find_launcher()
        try:
            self._launch(launcher)
        except OSError as error:
            raise PeerFailed(f"{launcher} was not started: {error}") from None

    def _launch(self, launcher: str) -> None:
        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="zerohop-bench-"))
        self._said = Path(folder) / "said"
        server = self._open.enter_context(socket.socket(socket.AF_UNIX))
        _bind(server, f"{folder}/orders")
        server.listen(SIZE)
        server.settimeout(LOOK_S)
        self._server = server
        module = "zerohop.bench.peers.mpi_rank"
        program = [sys.executable, "-m", module, f"{folder}/orders", str(self._arena_nbytes)]
        mapped = ["--oversubscribe", "--bind-to", "none"] if _is_open_mpi(launcher) else []
        paths = [str(Path(zerohop.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, **dict.fromkeys(ROOT, "1")}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        line = [launcher, "-n", str(SIZE), *mapped, *program]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment
            )

    def facts(self) -> Mapping[str, Any]:
        while len(self._ranks) < SIZE:
            self._accept()
        found: Mapping[str, Any] = self._ask(Order("facts", "", 0, 0))[0]
        return found

    def measure(self, order: Order, seconds: float) -> Found:
        return paced(self._ask, order, seconds)

    def finish(self) -> None:
        """The ranks end when there are no more orders."""
        if self._process is None:
            return
        for rank in self._ranks:
            rank.answers.close()
            rank.orders.close()
        try:
            status = self._process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"mpirun did not end within {EXIT_S:g} s") from None
        if status:
            raise PeerFailed(self._death())

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()  # mpirun takes its ranks along
            try:
                self._process.wait(EXIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = self._server = self._said = None
        self._ranks.clear()
        self._open.close()

    def _accept(self) -> None:
        if self._process is None or self._server is None:
            raise PeerFailed("mpirun was not started")
        until = time.monotonic() + self._bound
        while True:
            try:
                connection, _ = self._server.accept()
                break
            except TimeoutError:
                if self._process.poll() is not None:
                    raise PeerFailed(self._death()) from None
                if time.monotonic() > until:
                    raise PeerFailed(f"its ranks did not come in {self._bound:.0f} s") from None
        connection.settimeout(self._bound)
        enter = self._open.enter_context
        self._ranks.append(Channel(enter(connection), enter(connection.makefile("rb"))))

    def _ask(self, order: Order) -> list[Any]:
        """Every rank's answer, that of rank 0 first."""
        line = json.dumps([order.test, order.nbytes, order.times]).encode() + b"\n"
        try:
            for rank in self._ranks:
                rank.orders.sendall(line)
            lines = [rank.answers.readline() or "[0, null]" for rank in self._ranks]
            answers = dict(map(json.loads, lines))
        except TimeoutError:
            self.close()
            raise PeerFailed(f"no word from its ranks for {self._bound:.0f} s: gave up") from None
        except (OSError, ValueError):  # ValueError: half of an answer
            answers = {}
        if len(answers) < SIZE or None in answers.values():
            raise PeerFailed(self._death())
        found = [answers[rank] for rank in range(SIZE)]
        for answer in found:
            if isinstance(answer, dict) and "error" in answer:
                raise PeerFailed(str(answer["error"]))
        return found

    def _death(self) -> str:
        if self._process is None or self._said is None:
            return "its ranks are gone"
        try:
            ended = f"mpirun ended with status {self._process.wait(EXIT_S)}"
        except subprocess.TimeoutExpired:
            ended = "its ranks fell silent"
        said = " ".join(self._said.read_text(errors="replace").split())
        return f"{ended}: {said[:400]}"


def _find_launcher() -> str:
    if find_spec("mpi4py") is None:
        raise PeerFailed("mpi4py is not installed: pip install 'zerohop[mpi]'")
    for name in LAUNCHERS:
        if path := shutil.which(name):
            return path
    raise PeerFailed("no mpirun is on the PATH: apt-get install openmpi-bin")


def _bind(server: socket.socket, path: str) -> None:
    try:
        server.bind(path)
    except OSError as error:  # above all of more than 107 bytes: unix(7)
        remedy = "set TMPDIR to another folder, of a short name"
        raise PeerFailed(f"no socket at {path}: {error}: {remedy}") from None


def _is_open_mpi(launcher: str) -> bool:
    done = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False)
    return "Open MPI" in done.stdout or "OpenRTE" in done.stdout
