"""ucx_perftest, over TCP on loopback or shared memory: UCX's own measure of put, get and tagged messages."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from zerohop.bench.placement import FREE
from zerohop.bench.plan import LARGE_NBYTES, MIB, Found, PeerFailed
from zerohop.bench.programs import (
    Programs,
    free_port,
    lasting,
    printed,
    require_program,
    run_pair,
)

PACKAGE = "ucx-utils"
QUIET = {"UCX_LOG_LEVEL": "error"}
UCP_TESTS = {"latency": "ucp_put_lat", "write": "ucp_put_bw", "read": "ucp_get", "send": "tag_bw"}
UCT_TESTS = {"latency": "put_lat", "write": "put_bw", "read": "get"}
UNIT = 1 << 20  # ucx_perftest's "MB/s" are 2**20 bytes a second
FEW, MOST = 3, 50_000  # iterations
RANKS = (50, 99)  # percentiles of a latency: one run each


@dataclass(frozen=True)
class Way:
    """A UCX transport, and ucx_perftest's names for our tests on it."""

    name: str
    environment: Mapping[str, str]
    tests: Mapping[str, str]
    options: tuple[str, ...] = ()

    @property
    def settings(self) -> str:
        """The environment that selects this transport."""
        chosen = (f"{name}={text}" for name, text in self.environment.items())
        return " ".join((*chosen, *self.options))


TCP = Way("tcp", {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"}, UCP_TESTS)
POSIX = Way("posix,cma", {"UCX_TLS": "posix,cma"}, UCP_TESTS)  # memory that UCX maps
# Below UCP, because UCP copies to plain memory through a buffer (1.13).
CMA = Way("cma", {}, UCT_TESTS, ("-x", "cma", "-d", "memory", "-D", "zcopy"))


def contender(way: Way, ours: Mapping[str, str] | None = None) -> Programs:
    """ours: maps names of our tests to those of this file; "latency" is a half round trip of put."""
    names = ours or {test: test for test in way.tests}
    tests = {
        test: partial(latency, way) if name == "latency" else partial(bandwidth, way, name)
        for test, name in names.items()
        if name in way.tests
    }
    return Programs("ucx", lambda: {"ucx": version()}, tests)


def version() -> str:
    require_program("ucx_perftest", PACKAGE)
    for line in printed("ucx_info", "-v", PACKAGE).splitlines():
        words = line.lstrip("# ").split()
        if words[:1] in (["Version"], ["Library"]):
            return next((word for word in words[1:] if word[0].isdigit()), "unknown")
    return "unknown"


def latency(way: Way, nbytes: int, seconds: float, placement: str = FREE) -> Found:
    """Half round trips: {"mean": s, "p50": s, ...}.

    If only a few messages fit into `seconds`, only the first percentile is taken.
    """
    found: Found = {}
    for rank in RANKS:
        result = _run_for(way, "latency", nbytes, seconds, rank, placement)
        found[f"p{rank}"] = result[f"{rank}.0_percentile_lat"] * 1e-6
        found.setdefault("mean", result["overall_lat"] * 1e-6)
        if result["iterations"] <= FEW:
            break
    return found


def bandwidth(way: Way, test: str, nbytes: int, seconds: float, placement: str = FREE) -> Found:
    """Bandwidth over a whole run of about `seconds`.

    It prints two decimals: for few small messages on a busy machine only the time is usable.
    """
    found = _run_for(way, test, nbytes, seconds, 50, placement)
    return {"bandwidth": found["overall_bw"] * UNIT or nbytes / (found["overall_lat"] * 1e-6)}


def parse(text: str) -> dict[str, float]:
    """The one row of `ucx_perftest -f -v`, by the names in its heading (times in us, rates in MiB/s)."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for heading, row in itertools.pairwise(lines):
        if heading.startswith("iterations,"):
            try:
                values = [float(word) for word in row.split(",")]
                return dict(zip(heading.split(","), values, strict=True))
            except ValueError:
                break
    raise PeerFailed(f"ucx_perftest printed no figures that can be read: {text[-400:]!r}")


def first_iterations(nbytes: int) -> int:
    """Just enough to find the pace: on a busy machine UCX may need a minute for one put of 1 GiB."""
    if nbytes <= MIB:
        return 20
    return FEW if nbytes <= LARGE_NBYTES else 1


def _run_for(
    way: Way, test: str, nbytes: int, seconds: float, rank: int, placement: str
) -> dict[str, float]:
    def run(times: int) -> tuple[float, dict[str, float]]:
        found = _run(way, test, nbytes, times, rank, placement)
        return found["overall_lat"] * 1e-6 * (2 if test == "latency" else 1), found

    return lasting(run, first_iterations(nbytes), MOST, seconds)


def _run(
    way: Way, test: str, nbytes: int, iterations: int, rank: int, placement: str
) -> dict[str, float]:
    program = require_program("ucx_perftest", PACKAGE)
    port = free_port()
    numbers = {"-p": port, "-s": nbytes, "-n": iterations, "-w": max(1, iterations // 10)}
    client = [program, "127.0.0.1", "-t", way.tests[test], *way.options, "-f", "-v"]
    for option, number in {**numbers, "-R": rank}.items():
        client += [option, str(number)]
    environment = {**way.environment, **QUIET}
    return parse(run_pair([program, "-p", str(port)], client, port, placement, environment))
