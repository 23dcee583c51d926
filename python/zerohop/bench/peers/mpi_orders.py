"""How a rank that mpirun has started is given its orders: see mpi.py. Arguments: a placement, a socket's path, others."""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from zerohop.bench.placement import place
from zerohop.bench.stopping import die_with_parent
from zerohop.bench.wait.plan import CALLS
from zerohop.bench.wait.rounds import Job

RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")  # of Open MPI, MPICH, others


def serve(make: Callable[[], Any]) -> None:
    """Carries out orders by methods of what `make` returns, which have their names, until the socket closes."""
    die_with_parent()
    placement, path = sys.argv[1:3]
    place(placement, next((int(os.environ[name]) for name in RANKS if name in os.environ), 0))
    player = make()  # behind place(): the threads that MPI starts inherit it
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        with connection.makefile("rw") as orders:
            for line in orders:
                answer = _answer(player, *json.loads(line))
                print(json.dumps([player.rank, answer]), file=orders, flush=True)
    player.close()


def _answer(player: Any, test: str, nbytes: int, times: int) -> Any:
    if test == "facts":
        return player.facts()
    if isinstance(player, Job) and test in CALLS:
        return player.calls(test, nbytes, times)
    measure = getattr(player, test, None)
    return {"error": ""} if measure is None else measure(nbytes, times)


def mpi_facts(mpi: Any) -> dict[str, str]:
    library = mpi.Get_library_version().strip().split("\n")[0].split(",")[0]
    mpi4py = importlib.import_module("mpi4py")
    return {"mpi": library.rstrip("\x00"), "mpi4py": mpi4py.__version__}
