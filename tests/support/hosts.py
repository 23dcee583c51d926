"""Ranks of this host that pass for ranks of several, and what their reductions are by NumPy."""

from zerohop._world import membership
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


def put_on_hosts(monkeypatch, layout, *rows):
    """rows: of the table of algorithms; default: as it is."""
    host_of = {rank: str(host) for host in LAYOUTS[layout] for rank in host}
    monkeypatch.setattr(membership, "place_of", host_of.get)
    monkeypatch.setattr(Endpoint, "copies", property(lambda endpoint: True))
    if rows:
        monkeypatch.setattr(table, "DEFAULT", rows)


def reduced_by_hosts(op, arrays, layout, algorithm):
    """In the order that docs/collectives.md describes."""
    words, size = algorithm.split(), len(arrays)
    if "hosts" in words:
        hosts = LAYOUTS[layout]
    else:
        hosts = [(rank,) for rank in range(size)]
    partial = "sum" if op in ("avg", "premul_sum") else op
    blocks = [
        arrays[host[0]] if len(host) == 1 else reduced(partial, [arrays[rank] for rank in host])
        for host in hosts
    ]
    if "pairs" not in words:
        return reduced(op, blocks, size)
    extra = len(blocks) - (1 << len(blocks).bit_length() - 1)
    blocks = [reduced(partial, blocks[2 * n : 2 * n + 2]) for n in range(extra)] + blocks[2 * extra :]
    while len(blocks) > 2:
        blocks = [reduced(partial, blocks[n : n + 2]) for n in range(0, len(blocks), 2)]
    return reduced(op, blocks, size)
