"""iperf3, one TCP stream over loopback: what plain sockets carry here."""

from __future__ import annotations

import json
import subprocess

from zerohop.bench.peer import PeerFailed, free_port, require_program, run_pair
from zerohop.bench.placement import FREE
from zerohop.bench.turns import Found, Programs

PACKAGE = "iperf3"
LARGEST_WRITE = 1 << 20  # iperf3 refuses larger ones (-l)


def player(placement: str = FREE) -> Programs:
    """Of its writes of a size it can show; what small ones reach is the cost of a system call."""
    return Programs("iperf3", lambda: {"iperf3": version()}, {"write": _write}, placement)


def _write(nbytes: int, seconds: float) -> Found:
    return {"bandwidth": bandwidth(nbytes, seconds)} if nbytes >= LARGEST_WRITE else {}


def version() -> str:
    program = require_program("iperf3", PACKAGE)
    text = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False
    ).stdout
    words = text.split()
    return words[1] if len(words) > 1 else "unknown"


def bandwidth(nbytes: int, seconds: float) -> float:
    """Bytes a second that the receiver counted, with writes of `nbytes`, or 1 MiB if that is less."""
    program = require_program("iperf3", PACKAGE)
    port = free_port()
    server = [program, "-s", "-1", "-B", "127.0.0.1", "-p", str(port)]
    client = [program, "-c", "127.0.0.1", "-p", str(port), "-J", "-t", str(max(1, round(seconds)))]
    return parse(run_pair(server, [*client, "-l", str(min(nbytes, LARGEST_WRITE))], port))


def parse(text: str) -> float:
    """Bytes a second of `iperf3 -J`."""
    try:
        report = json.loads(text)
    except json.JSONDecodeError:
        raise PeerFailed(f"iperf3 printed no JSON: {text[-400:]!r}") from None
    if "error" in report:
        raise PeerFailed(f"iperf3: {report['error']}")
    bits: float = report["end"]["sum_received"]["bits_per_second"]
    return bits / 8
