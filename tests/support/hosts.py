"""Ranks of this host that pass for ranks of several, and what their reductions are by NumPy."""

from collections import defaultdict

from zerohop._world.all_ranks import AllRanks
from zerohop.collectives import table
from zerohop.endpoint import Endpoint

from support.reduced import reduced

LAYOUTS = {
    "2x2": ((0, 1), (2, 3)),
    "2+1": ((0, 1), (2,)),
    "3x1": ((0,), (1,), (2,)),
    "2x3": ((0, 1, 2), (3, 4, 5)),
    "in turn": ((0, 2), (1, 3)),
    "3+2+1": ((0, 1, 2), (3, 4), (5,)),
}


def size_of(layout):
    return sum(map(len, LAYOUTS[layout]))


def put_on_hosts(monkeypatch, layout=None):
    """None: on one."""
    if layout is None:
        host_of = defaultdict(lambda: "the only one")
    else:
        host_of = {rank: str(host) for host in LAYOUTS[layout] for rank in host}
    monkeypatch.setattr(AllRanks, "place", property(lambda ranks: host_of[ranks.rank]))
    monkeypatch.setattr(Endpoint, "copies", property(lambda endpoint: True))


def reduced_by_hosts(op, arrays, hosts, algorithm):
    """In the order that docs/collectives.md describes. hosts: the ranks of each."""
    words, size = algorithm.split(), len(arrays)
    if "flat" in words and len(hosts) > 1:
        hosts = [(rank,) for rank in range(size)]
    if len(hosts) == 1:
        return reduced(op, arrays)
    partial = "sum" if op in ("avg", "premul_sum") else op
    blocks = [
        arrays[host[0]] if len(host) == 1 else reduced(partial, [arrays[rank] for rank in host])
        for host in hosts
    ]
    if "pairs" in words:
        extra = len(blocks) - (1 << len(blocks).bit_length() - 1)
        folded = [reduced(partial, blocks[2 * n : 2 * n + 2]) for n in range(extra)]
        blocks = folded + blocks[2 * extra :]
        while len(blocks) > 2:
            blocks = [reduced(partial, blocks[n : n + 2]) for n in range(0, len(blocks), 2)]
    return reduced(op, blocks, size)


def as_the_table_has_it(world, call, op, arrays):
    """As the World's table has it. call: "all_reduce" or "reduce"."""
    places = world._desk.lines.hosts
    hosts = [
        tuple(rank for rank, each in enumerate(places) if each == place)
        for place in dict.fromkeys(places)
    ]
    return reduced_by_the_table(call, op, arrays, hosts)


def reduced_by_the_table(call, op, arrays, hosts):
    """By the default table. A "reduce" is never in pairs."""
    limits = len(hosts), len(arrays), arrays[0].nbytes
    algorithm = next(
        row.algorithm
        for row in table.DEFAULT
        if all(most is None or each <= most for each, most in zip(limits, row[:3], strict=True))
    )
    if call == "reduce":
        algorithm = algorithm.replace("pairs", "")
    return reduced_by_hosts(op, arrays, hosts, algorithm)
