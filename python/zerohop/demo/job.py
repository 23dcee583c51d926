"""What each worker process of the demo does, from its Endpoint to its results."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import zerohop as zh
from zerohop.demo.heat_job import HeatResult, run_heat
from zerohop.demo.model import ModelResult, fetch, publish
from zerohop.local import Link

REPORT_EVERY_S = 0.05  # the bar needs no more, and every report costs the parent a wake-up


@dataclass(frozen=True)
class Job:
    ranks: int
    side: int  # of the square grid, in cells
    steps: int
    device: str | None  # None: zerohop chooses


@dataclass
class RankResult:
    device: str
    heat: HeatResult
    model: ModelResult


def work(link: Link, job: Job) -> RankResult:
    report = _throttled(link)
    with zh.Endpoint(job.device, p2p=0) as endpoint:
        addresses = link.exchange(endpoint.address)
        peers = {
            rank: endpoint.connect(address)
            for rank, address in enumerate(addresses)
            if rank != link.rank
        }
        heat = run_heat(link, endpoint, peers, job.side, job.steps, report)
        report("state_dict", 0, 1)
        model = publish(endpoint) if link.rank == 0 else fetch(endpoint, peers[0])
        report("state_dict", 1, 1)
        link.exchange(None)  # rank 0's arrays stay published until everybody has them
        return RankResult(endpoint.device, heat, model)


def _throttled(link: Link) -> Callable[[str, int, int], None]:
    last = ("", 0.0)

    def report(what: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if what != last[0] or done == total or now - last[1] >= REPORT_EVERY_S:
            last = (what, now)
            link.report((what, done, total))

    return report
