"""iperf3, one TCP stream over loopback: the bandwidth of plain sockets here."""

from __future__ import annotations

import json

from zerohop.bench.placement import FREE
from zerohop.bench.plan import Found, PeerFailed
from zerohop.bench.programs import Programs, free_port, printed, require_program, run_pair

PACKAGE = "iperf3"
LARGEST_WRITE = 1 << 20  # iperf3 refuses larger ones (-l)


def contender() -> Programs:
    """Only for large writes: small ones measure the cost of a system call."""
    return Programs("iperf3", lambda: {"iperf3": version()}, {"write": _write})


def version() -> str:
    words = printed("iperf3", "--version", PACKAGE).split()
    return words[1] if len(words) > 1 else "unknown"


def _write(nbytes: int, seconds: float, placement: str = FREE) -> Found:
    """The rate that the receiver counted, with writes of 1 MiB."""
    if nbytes < LARGEST_WRITE:
        return {}
    program = require_program("iperf3", PACKAGE)
    port = free_port()
    server = [program, "-s", "-1", "-B", "127.0.0.1", "-p", str(port)]
    client = [program, "-c", "127.0.0.1", "-p", str(port), "-J", "-t", str(max(1, round(seconds)))]
    client += ["-l", str(LARGEST_WRITE)]
    return {"bandwidth": parse(run_pair(server, client, port, placement))}


def parse(text: str) -> float:
    """Bytes a second from `iperf3 -J`."""
    try:
        report = json.loads(text)
    except json.JSONDecodeError:
        raise PeerFailed(f"iperf3 printed no JSON: {text[-400:]!r}") from None
    if "error" in report:
        raise PeerFailed(f"iperf3: {report['error']}")
    bits: float = report["end"]["sum_received"]["bits_per_second"]
    return bits / 8
