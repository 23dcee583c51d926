"""Large writes between two guests on two wires: over one rail, over both, and what each rail carried."""

from __future__ import annotations

from collections.abc import Iterator

from zerohop.bench.rows import Row, medians

from vm.interpreter import Interpreter
from vm.pair import Pair

SUITE = "perftest"
NBYTES, TIMES, WINDOW = 4 << 20, 16, 4  # of a write; writes of one measurement; under way
ROUNDS = 3
TESTS = {"one_rail": "rxe0", "two_rails": "rxe0,rxe1"}
TIMEOUT = 240.0  # seconds, of one measurement

IMPORTS = "import numpy as np, zerohop as zh; from zerohop import _core; at = {}"
OPEN = f"""
ep = zh.Endpoint({{device!r}}, host={{host!r}}, timeout=60.0)
arena = ep.empty({NBYTES})
np.asarray(arena)[:] = 0
ep.share("arena", arena)
"""
MEASURE = f"""
peer, arena = at[{{test!r}}]
moved = lambda: [rail["bytes_out"] for rail in peer.stats()["rails"]]
before = moved()
seconds = _core.bench_stream(
    peer, "write", arena, peer["arena"], {TIMES}, {WINDOW}, {TIMEOUT}
)
answer = [seconds, [after - then for after, then in zip(moved(), before)]]
"""


def measure_rails() -> list[Row]:
    """Ends with an AssertionError or a RemoteError where the guests do not do it."""
    with Pair(wires=2) as pair:
        a, b = (Interpreter(guest, IMPORTS) for guest in pair.guests)
        for side in (a, b):
            side.wait_ready()
        for test, device in TESTS.items():
            _connect(pair, a, b, test, device)
        rows: list[Row] = []
        for number in range(ROUNDS):
            print(f"two guests, two wires: round {number + 1} of {ROUNDS}", flush=True)
            for test in TESTS:
                rows += _rows(test, *a.run(MEASURE.format(test=test), timeout=TIMEOUT))
        return medians(rows)


def _connect(pair: Pair, a: Interpreter, b: Interpreter, test: str, device: str) -> None:
    for number, side in enumerate((a, b)):
        host = pair.wires[0].address(number)
        side.run(OPEN.format(device=device, host=host), timeout=120)
    address = b.run("answer = ep.address.hex()")
    b.begin("peer = ep.accept(timeout=60)")
    a.run(f"peer = ep.connect(bytes.fromhex({address!r}), timeout=60)", timeout=120)
    b.finish(60)
    for side in (a, b):
        side.run(f"at[{test!r}] = peer, arena")


def _rows(test: str, seconds: float, moved: list[int]) -> Iterator[Row]:
    figures = {"bandwidth": (NBYTES * TIMES / seconds, "B/s")}
    figures |= {f"rail{i}_bytes": (float(nbytes), "B") for i, nbytes in enumerate(moved)}
    for metric, (value, unit) in figures.items():
        yield Row(
            suite=SUITE, test=test, route="host", device=TESTS[test], memory="host", driver="cpp",
            nbytes=NBYTES, impl="zerohop", metric=metric, value=value, unit=unit,
        )  # fmt: skip
