"""ucx_perftest, over TCP on loopback or shared memory: UCX's own measure of put, get and tagged messages."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from zerohop.bench.peer import PeerFailed, free_port, require_program, run_pair
from zerohop.bench.placement import FREE
from zerohop.bench.plan import LARGE_NBYTES, MIB
from zerohop.bench.turns import Found, Programs

PACKAGE = "ucx-utils"


@dataclass(frozen=True)
class Way:
    """What carries the bytes, and what ucx_perftest calls our tests there."""

    name: str
    environment: Mapping[str, str]
    tests: Mapping[str, str]
    options: tuple[str, ...] = ()

    @property
    def settings(self) -> str:
        """What makes UCX go this way."""
        chosen = {name: text for name, text in self.environment.items() if name not in QUIET}
        return " ".join((*(f"{name}={text}" for name, text in chosen.items()), *self.options))


UCP_TESTS = {"latency": "ucp_put_lat", "write": "ucp_put_bw", "read": "ucp_get", "send": "tag_bw"}
UCT_TESTS = {"latency": "put_lat", "write": "put_bw", "read": "get"}
QUIET = {"UCX_LOG_LEVEL": "error"}
TCP = Way("tcp", {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo", **QUIET}, UCP_TESTS)
POSIX = Way("posix,cma", {"UCX_TLS": "posix,cma", **QUIET}, UCP_TESTS)  # memory that UCX maps
# Below UCP, which copies to plain memory through a buffer instead (1.13).
CMA = Way("cma", QUIET, UCT_TESTS, ("-x", "cma", "-d", "memory", "-D", "zcopy"))
UNIT = 1 << 20  # ucx_perftest's "MB/s" are 2**20 bytes a second
FEW, MOST = 3, 50_000  # iterations


def player(
    way: Way,
    ranks: tuple[int, ...],
    ours: Mapping[str, str] | None = None,
    placement: str = FREE,
) -> Programs:
    """ours: by our test's name that of this file; those whose name ends in latency are half round trips.

    ranks: which percentiles of a latency are measured.
    """
    names = {test: test for test in way.tests} if ours is None else ours
    tests = {test: _test(way, name, ranks) for test, name in names.items() if name in way.tests}
    return Programs("ucx", lambda: {"ucx": version()}, tests, placement)


def _test(way: Way, name: str, ranks: tuple[int, ...]) -> Callable[[int, float], Found]:
    def measure(nbytes: int, seconds: float) -> Found:
        if name == "latency":
            return latency(nbytes, seconds, ranks, way)
        return {"bandwidth": bandwidth(name, nbytes, seconds, way)}

    return measure


def version() -> str:
    require_program("ucx_perftest", PACKAGE)
    info = require_program("ucx_info", PACKAGE)
    text = subprocess.run([info, "-v"], capture_output=True, text=True, check=False).stdout
    for line in text.splitlines():
        words = line.lstrip("# ").split()
        if words[:1] in (["Version"], ["Library"]):
            return next((word for word in words[1:] if word[0].isdigit()), "unknown")
    return "unknown"


def latency(
    nbytes: int, seconds: float, ranks: tuple[int, ...], way: Way = TCP
) -> dict[str, float]:
    """Half round trips of put: {"mean": s, "p50": s, ...}; each percentile is a run of its own.

    Of messages so large that only a few fit into `seconds`, only the first percentile is taken.
    """
    found: dict[str, float] = {}
    for rank in ranks:
        result = _run_for("latency", nbytes, seconds, rank, way)
        found[f"p{rank}"] = result[f"{rank}.0_percentile_lat"] * 1e-6
        found.setdefault("mean", result["overall_lat"] * 1e-6)
        if result["iterations"] <= FEW:
            break
    return found


def bandwidth(test: str, nbytes: int, seconds: float, way: Way = TCP) -> float:
    """Bytes a second over the whole of a run of about `seconds`.

    It prints two decimals: of few small messages on a busy machine nothing is left but their time.
    """
    found = _run_for(test, nbytes, seconds, 50, way)
    return found["overall_bw"] * UNIT or nbytes / (found["overall_lat"] * 1e-6)


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
    """As few as show the pace: on a busy machine UCX may need a minute for one put of 1 GiB."""
    if nbytes <= MIB:
        return 20
    return FEW if nbytes <= LARGE_NBYTES else 1


def _run_for(test: str, nbytes: int, seconds: float, rank: int, way: Way) -> dict[str, float]:
    """A short run to learn the pace, and, unless that was long enough already, one of `seconds`."""
    runs = first_iterations(nbytes)
    first = _run(test, nbytes, runs, rank, way)
    each = first["overall_lat"] * 1e-6 * (2 if test == "latency" else 1)
    wanted = min(MOST, int(seconds / max(each, 1e-7)))
    return first if wanted <= 2 * runs else _run(test, nbytes, wanted, rank, way)


def _run(test: str, nbytes: int, iterations: int, rank: int, way: Way) -> dict[str, float]:
    program = require_program("ucx_perftest", PACKAGE)
    port = free_port()
    server = [program, "-p", str(port)]
    client = [program, "127.0.0.1", "-p", str(port), "-t", way.tests[test], "-s", str(nbytes)]
    client += [
        *way.options,
        "-n",
        str(iterations),
        "-w",
        str(max(1, iterations // 10)),
        "-R",
        str(rank),
    ]
    return parse(run_pair(server, [*client, "-f", "-v"], port, way.environment))
