"""Two places with a network each of their own, joined by wires that can be cut without a word: network namespaces.

What is sent over a wire that is cut vanishes in the bridge between; no end sees an interface go down, nor a connection reset.
"""

from __future__ import annotations

import subprocess
import sys
from multiprocessing import Pipe
from typing import Any

from support.link import DEFAULT_TIMEOUT, START_TIMEOUT, Link
from support.spawned import environment_of

WIRES = ("data", "control")
_ENTER = ["nsenter", "--user", "--net", "--preserve-credentials", "--target"]


def refused() -> str | None:
    """Why there can be no such network here; None: there can."""
    script = "ip link add name wire type bridge && ip link add name one type veth peer name other"
    probe = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", script],
        capture_output=True, check=False, text=True, timeout=DEFAULT_TIMEOUT,
    )  # fmt: skip
    return f"no network of its own is allowed here: {probe.stderr}" if probe.returncode else None


def host(wire: str, place: int) -> str:
    return f"10.77.{WIRES.index(wire)}.{place + 1}"


class Network:
    """Between place 0 and place 1, with both wires whole."""

    def __init__(self) -> None:
        self._hub = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", "echo made; read end"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._hub.stdout is not None
        assert self._hub.stdout.readline() == b"made\n"
        for wire in WIRES:
            self._in(self._hub.pid, f"ip link add name {wire} type bridge && ip link set {wire} up")

    @property
    def hub(self) -> int:
        return self._hub.pid

    def join(self, place: int, pid: int) -> None:
        """That process, in a network namespace below the hub's, gets its ends of the wires."""
        for wire in WIRES:
            end = f"{wire}{place}"
            self._in(self.hub, f"ip link add name {end} type veth peer name {wire} netns {pid}")
            self._in(self.hub, f"ip link set {end} master {wire} up")
            address = f"ip address add {host(wire, place)}/24 dev {wire}"
            self._in(pid, f"{address} && ip link set {wire} up && ip link set lo up")

    def cut(self, *wires: str) -> None:
        for wire in wires:
            self._in(self.hub, f"ip link set {wire}0 nomaster")

    def heal(self) -> None:
        for wire in WIRES:
            self._in(self.hub, f"ip link set {wire}0 master {wire}")

    def _in(self, pid: int, script: str) -> None:
        done = subprocess.run(
            [*_ENTER, str(pid), "sh", "-c", script],
            capture_output=True, check=False, text=True, timeout=DEFAULT_TIMEOUT,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}: {done.stderr}"

    def close(self) -> None:
        assert self._hub.stdin is not None
        assert self._hub.stdout is not None
        self._hub.kill()
        self._hub.wait()
        self._hub.stdin.close()
        self._hub.stdout.close()


class Place:
    """A process that does what it is told (support.apart), at that place of the network. opposite: descriptors to the other."""

    def __init__(self, network: Network, place: int, opposite: list[int]) -> None:
        ours, theirs = Pipe()
        self._link = Link(ours)
        with theirs:
            descriptors = [theirs.fileno(), *opposite]
            command = [*_ENTER, str(network.hub), "unshare", "--net", sys.executable, "-m"]
            self._process = subprocess.Popen(
                [*command, "support.apart", str(place), *map(str, descriptors)],
                pass_fds=descriptors,
                env=environment_of(),
            )
        assert self._link.recv(START_TIMEOUT) == "here"
        network.join(place, self._process.pid)

    def begin(self, call: str, *arguments: Any) -> None:
        self._link.send((call, arguments))

    def finish(self, timeout: float = DEFAULT_TIMEOUT) -> Any:
        """What the call returned, or raises what it raised."""
        value = self._link.recv(timeout)
        if isinstance(value, BaseException):
            raise value
        return value

    def __call__(self, call: str, *arguments: Any) -> Any:
        self.begin(call, *arguments)
        return self.finish()

    def close(self) -> None:
        self._process.kill()
        self._process.wait(DEFAULT_TIMEOUT)
        self._link.close()
