"""perftest, of linux-rdma: ib_write_bw, ib_write_lat and the like, two processes on one device of libibverbs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from zerohop import verbs
from zerohop.bench.peer import PeerFailed, free_port, require_program, run_pair
from zerohop.bench.placement import FREE
from zerohop.bench.plan import first_times, window
from zerohop.bench.turns import Found, Programs

PACKAGE = "perftest"
UNIT = 1 << 20  # its "MB/sec" are 2**20 bytes a second
MOST, LEAST = 20_000, 5  # of one run: its tools refuse fewer than 5
SOFT = "soft"  # how devices of the package itself begin
FIRST_NBYTES = 1 << 20
LATENCIES = {  # ours: the program; each with the same halves of round trips or whole ones
    "ping_pong_latency": "ib_write_lat",
    "read_latency": "ib_read_lat",
    "fetch_add_latency": "ib_atomic_lat",
}
BANDWIDTHS = {"write": "ib_write_bw", "read": "ib_read_bw", "send": "ib_send_bw"}
SEVERAL = {"write_4_qp": ("ib_write_bw", 4)}


class Perftest:
    def __init__(self, device: verbs.Device) -> None:
        self._options = ["-d", device.name, "-x", str(device.gid_index), "-F"]
        self._options += ["-m", str(device.mtu), "-i", str(device.port)]

    def run(self, program: str, nbytes: int, times: int, *options: str) -> list[float]:
        """The figures of the one row that its table has, behind the size and the number."""
        path = require_program(program, PACKAGE)
        port = free_port()
        line = [path, *self._options, *options]
        line += ["-n", str(times), "-p", str(port)]
        if program != "ib_atomic_lat":  # whose size is 8
            line += ["-s", str(nbytes)]
        return parse(run_pair(line, [*line, "127.0.0.1"], port), program, nbytes, times)

    def bandwidth(
        self, nbytes: int, times: int, program: str = "ib_write_bw", queue_pairs: int = 1
    ) -> float:
        """Its columns: peak, average, messages. -Q: requests to each completion."""
        depth = str(max(1, window(nbytes) // queue_pairs))
        options = ["-q", str(queue_pairs), "-t", depth]
        if program == "ib_send_bw":
            options += ["-r", str(2 * window(nbytes))]
        figures = self.run(program, nbytes, times, *options, "-Q", "1")
        return figures[1] * UNIT

    def latency(self, nbytes: int, times: int, program: str = "ib_write_lat") -> Found:
        """Its columns: least, most, typical, average, deviation, 99 %, 99.9 %; in us."""
        figures = self.run(program, nbytes, times)
        return {"p50": figures[2] * 1e-6, "mean": figures[3] * 1e-6, "p99": figures[5] * 1e-6}


def player(name: str, placement: str = FREE) -> Programs:
    """On the device of that name. It says why not where that is none of libibverbs."""
    tests: dict[str, Callable[[int, float], Found]] = {}
    if not name.startswith(SOFT):
        runs = Perftest(verbs.Device(name))
        for test, program in LATENCIES.items():
            tests[test] = _latency(runs, program)
        for test, program in BANDWIDTHS.items():
            tests[test] = _bandwidth(runs, program, 1)
        for test, (program, queue_pairs) in SEVERAL.items():
            tests[test] = _bandwidth(runs, program, queue_pairs)

    def look() -> Found | dict[str, str]:
        if not tests:
            raise PeerFailed(f"its programs run on devices of libibverbs, of which {name} is none")
        return {"perftest": version()}

    return Programs("perftest", look, tests, placement)


def version() -> str:
    program = require_program("ib_write_bw", PACKAGE)
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return text.stdout.strip().rpartition(" ")[2]


def parse(text: str, program: str, nbytes: int, times: int) -> list[float]:
    """The row that begins with the size; the number of several queue pairs is that of all of them."""
    for row in text.splitlines():
        words = row.split()
        if len(words) < 4 or words[0] != str(nbytes) or not words[1].isdecimal():
            continue
        if int(words[1]) % times == 0:
            return [float(word) for word in words[2:]]
    raise PeerFailed(f"{program} printed no figures that can be read: {text[-400:]!r}")


def _latency(runs: Perftest, program: str) -> Callable[[int, float], Found]:
    def measure(nbytes: int, seconds: float) -> Found:
        first = runs.latency(nbytes, 100, program)
        times = _times(seconds / (2 * first["mean"]))
        return first if times <= 200 else runs.latency(nbytes, times, program)

    return measure


def _bandwidth(runs: Perftest, program: str, queue_pairs: int) -> Callable[[int, float], Found]:
    def measure(nbytes: int, seconds: float) -> Found:
        few = max(LEAST, first_times("write", nbytes))
        first = runs.bandwidth(nbytes, few, program, queue_pairs)
        times = _times(seconds * first / nbytes / queue_pairs)
        if times > 2 * few:
            first = runs.bandwidth(nbytes, times, program, queue_pairs)
        return {"bandwidth": first}

    return measure


def _times(wanted: float) -> int:
    return min(MOST, max(LEAST, int(wanted)))
