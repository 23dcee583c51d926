"""Running another project's benchmark: a server and a client process on loopback, both bounded in time."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path

from zerohop.bench.placement import FREE, placed

LISTEN_S = 10.0  # for the server to open its port
RUN_S = 120.0  # for one run of the client
LISTENING = "0A"  # the state TCP_LISTEN in /proc/net/tcp
PLACEMENT = ContextVar("PLACEMENT", default=FREE)


class PeerFailed(RuntimeError):
    """A peer that was asked for is missing or failed; the message says what to install or what it said."""


class FigureFailed(PeerFailed):
    """A figure was not taken that should have been: no answer came, or an error."""


def require_program(program: str, package: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise PeerFailed(f"{program} is not installed: apt-get install {package}")
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run_pair(
    server: list[str], client: list[str], port: int, environment: Mapping[str, str] | None = None
) -> str:
    """Starts `server`, runs `client` once its port is open, and returns what the client printed.

    PLACEMENT: of the two.
    """
    placement = PLACEMENT.get()
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
            raise PeerFailed(f"{name}: no end after {RUN_S:.0f} s") from None
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
            raise PeerFailed(f"{serving.args!r} ended before it listened: {said[-400:].strip()}")
        if time.monotonic() > deadline:
            raise PeerFailed(f"{serving.args!r} did not listen on port {port} in {LISTEN_S:.0f} s")
        time.sleep(0.005)


def _is_listening(port: int) -> bool:
    """Reads the kernel's table: a connection made to find out would be taken for the client's."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        path = Path(table)
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False
