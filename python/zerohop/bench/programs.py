"""Contenders that are programs of other projects: a server and a client on loopback, both with a time limit."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from zerohop.bench.placement import FREE, placed
from zerohop.bench.plan import Contender, Found, Order, PeerFailed

LISTEN_S = 10.0  # for the server to open its port
RUN_S = 120.0  # for one run of the client
LISTENING = "0A"  # the state TCP_LISTEN in /proc/net/tcp
Result = TypeVar("Result")


class Programs(Contender):
    """A contender that is started again for every figure, and idle in between.

    look: returns its facts, for the header. tests: our tests that it can do, each from nbytes, seconds and a placement.
    """

    def __init__(
        self,
        name: str,
        look: Callable[[], Mapping[str, Any]],
        tests: Mapping[str, Callable[[int, float, str], Found]],
    ) -> None:
        self.name = name
        self._look = look
        self._tests = tests
        self._placement = FREE

    def start(self, placement: str = FREE) -> None:
        self._placement = placement

    def facts(self) -> Mapping[str, Any]:
        return self._look()

    def measure(self, order: Order, seconds: float) -> Found:
        if order.test not in self._tests:
            raise PeerFailed("")
        return self._tests[order.test](order.nbytes, seconds, self._placement)


def lasting(
    run: Callable[[int], tuple[float, Result]], few: int, most: int, seconds: float
) -> Result:
    """The result of a run of about `seconds`. A first run of `few` times finds the pace, and may be enough.

    run: from times to the seconds of each, and the result.
    """
    each, found = run(few)
    times = min(most, int(seconds / max(each, 1e-7)))
    return found if times <= 2 * few else run(times)[1]


def require_program(program: str, package: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise PeerFailed(f"{program} is not installed: apt-get install {package}")
    return path


def printed(program: str, option: str, package: str) -> str:
    """Its output: the version."""
    command = [require_program(program, package), option]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run_pair(
    server: list[str],
    client: list[str],
    port: int,
    placement: str = FREE,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Starts `server`, runs `client` once its port is open, and returns the output of the client."""
    variables = {**os.environ, **(environment or {})}
    name = " ".join(client)
    with placed(placement, 0):
        serving = subprocess.Popen(
            server, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=variables
        )
    with serving:
        try:
            _await_listener(serving, port)
            with placed(placement, 1):
                done = subprocess.run(
                    client,
                    capture_output=True,
                    text=True,
                    env=variables,
                    timeout=RUN_S,
                    check=False,
                )
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"{name}: still running after {RUN_S:.0f} s") from None
        finally:
            serving.kill()
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise PeerFailed(f"{name}: exit status {done.returncode}: {said[-400:]}")
    return done.stdout


def _await_listener(serving: subprocess.Popen[str], port: int) -> None:
    deadline = time.monotonic() + LISTEN_S
    while not _is_listening(port):
        if serving.poll() is not None:
            said = serving.stderr.read() if serving.stderr else ""
            raise PeerFailed(f"{serving.args!r} exited before it listened: {said[-400:].strip()}")
        if time.monotonic() > deadline:
            raise PeerFailed(f"{serving.args!r} did not listen on port {port} in {LISTEN_S:.0f} s")
        time.sleep(0.005)


def _is_listening(port: int) -> bool:
    """Reads the kernel's table: the server would take a test connection for the client's."""
    for path in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False
