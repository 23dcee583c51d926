"""Two places with a network each of their own, joined by wires that can be cut without a word: network namespaces.

What is sent over a wire that is cut vanishes in the bridge between; no end sees an interface go down, nor a connection reset.
"""

import subprocess

from support.program import run
from support.spawned import Worker

WIRES = ("data", "control")
_ENTER = ["nsenter", "--user", "--net", "--preserve-credentials", "--target"]


def refused() -> str | None:
    """Why there can be no such network here; None: there can."""
    script = "ip link add name wire type bridge && ip link add name one type veth peer name other"
    probe = run("unshare", "--user", "--map-root-user", "--net", "sh", "-c", script)
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
        done = run(*_ENTER, str(pid), "sh", "-c", script)
        assert done.returncode == 0, f"{script}: {done.stderr}"

    def close(self) -> None:
        assert self._hub.stdin is not None
        assert self._hub.stdout is not None
        self._hub.kill()
        self._hub.wait()
        self._hub.stdin.close()
        self._hub.stdout.close()


def place(network: Network, number: int, opposite: list[int]) -> Worker:
    """A process that does what it is asked (support.apart), at that place of the network. opposite: descriptors to the other."""
    enter = [*_ENTER, str(network.hub), "unshare", "--net"]
    reported = Worker("support.apart", number, more=opposite, enter=enter)
    reported.ask("here")  # it is in that network by now
    network.join(number, reported.pid)
    return reported
