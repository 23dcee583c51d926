"""The heat equation as each rank runs it: fill, step with halo exchange, and rank 0's check."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import zerohop as zh
from zerohop.demo.halo import HaloExchange, connect_halos
from zerohop.demo.heat import Grid, Strip, differing_cells, fill_initial, reference, step_rows
from zerohop.local import Link

CHECK_NBYTES = 64 << 20  # rank 0 reads the others' rows in pieces of this size
WARM_ROUNDS = 20  # halo exchanges with no compute between them: not counted ...
BARE_ROUNDS = 200  # ... and counted

Progress = Callable[[str, int, int], None]  # what, done, of how many


@dataclass
class HeatResult:
    """What one rank saw. Times in seconds; the check's fields are filled on rank 0 only."""

    halo_nbytes: int = 0
    halo_route: str = ""
    steps_s: float = 0.0
    exposed_s: list[float] = field(default_factory=list)  # waiting for halos after the compute
    bare_s: list[float] = field(default_factory=list)  # whole halo exchanges with no compute
    read_route: str = ""
    read_nbytes: int = 0
    read_s: float = 0.0
    differing: int = 0  # cells that are not bit for bit those of the reference


def run_heat(
    link: Link,
    endpoint: zh.Endpoint,
    peers: dict[int, zh.Peer],
    side: int,
    steps: int,
    progress: Progress,
) -> HeatResult:
    strip = Strip.of_rank(link.rank, link.size, side, side)
    result = HeatResult()
    grids = (endpoint.empty(strip.shape, "float32"), endpoint.empty(strip.shape, "float32"))
    arrays = (np.asarray(grids[0]), np.asarray(grids[1]))
    fill_initial(arrays[0], strip)
    arrays[1].fill(0)  # its frame stays cold at the grid's edge and comes from neighbours elsewhere
    for parity in (0, 1):
        endpoint.share(f"heat/{parity}", grids[parity])
    link.exchange(None)  # nobody's halo may arrive before the grids are filled

    halos = connect_halos(endpoint, grids, peers.get(link.rank - 1), peers.get(link.rank + 1))
    result.halo_nbytes = halos.row_nbytes
    result.halo_route = halos.route()
    begin = time.perf_counter()
    for step in range(1, steps + 1):
        result.exposed_s.append(_step(arrays, halos, step))
        progress("heat equation", step, steps)
    result.steps_s = time.perf_counter() - begin

    result.bare_s = _bare_exchanges(halos, steps)
    link.exchange(None)  # every rank has its final state, and no halo is on its way
    if link.rank == 0:
        _check(result, arrays[steps % 2], endpoint, peers, link.size, side, steps, progress)
    link.exchange(None)  # and now nobody reads our grids any more
    for parity in (0, 1):
        endpoint.unshare(f"heat/{parity}")
        grids[parity].close()
    return result


def _step(arrays: tuple[Grid, Grid], halos: HaloExchange, step: int) -> float:
    """Edges first, so that they travel while the rows between them are stepped."""
    source, target = arrays[(step - 1) % 2], arrays[step % 2]
    last = target.shape[0] - 2
    step_rows(source, target, 1, 2)
    step_rows(source, target, last, last + 1)
    halos.post(step)
    step_rows(source, target, 2, last)
    begin = time.perf_counter()
    halos.wait(step)
    return time.perf_counter() - begin


def _bare_exchanges(halos: HaloExchange, steps: int) -> list[float]:
    """Exchanges of the same rows with nothing between them; they rewrite what is there already."""
    samples = []
    for step in range(steps + 1, steps + 1 + WARM_ROUNDS + BARE_ROUNDS):
        begin = time.perf_counter()
        halos.post(step)
        halos.wait(step)
        samples.append(time.perf_counter() - begin)
    return samples[WARM_ROUNDS:]


def _check(
    result: HeatResult,
    own: Grid,
    endpoint: zh.Endpoint,
    peers: dict[int, zh.Peer],
    size: int,
    side: int,
    steps: int,
    progress: Progress,
) -> None:
    """Reads every other rank's final rows and compares all of them with the reference."""
    expected = reference(side, side, steps, lambda step: progress("reference", step, steps))
    own_rows = own.shape[0] - 1  # the frame above is compared as well, the one below is rank 1's
    result.differing = differing_cells(own[:own_rows], expected[:own_rows])
    rows_at_once = max(1, CHECK_NBYTES // (4 * (side + 2)))
    with endpoint.empty((rows_at_once, side + 2), "float32") as landing:
        for rank in range(1, size):
            strip = Strip.of_rank(rank, size, side, side)
            remote = peers[rank].lookup(f"heat/{steps % 2}")
            result.read_route = str(peers[rank].route(landing, remote[1 : 1 + rows_at_once]))
            for first in range(0, strip.rows, rows_at_once):
                rows = min(rows_at_once, strip.rows - first)
                begin = time.perf_counter()
                peers[rank].read(remote[1 + first : 1 + first + rows], landing[:rows]).wait()
                result.read_s += time.perf_counter() - begin
                result.read_nbytes += landing[:rows].nbytes
                top = 1 + strip.first + first
                result.differing += differing_cells(
                    np.asarray(landing[:rows]), expected[top : top + rows]
                )
            progress("comparing", rank, size - 1)
