"""What `zerohop bench wait` measures: a ping-pong of two processes, and calls of all ranks of a job."""

from __future__ import annotations

from zerohop.bench.plan import KIB, Options, Step

PEERS = ("pipe", "tcp", "mpi", "gloo")
NBYTES = 8
LATENCY = "latency"
CALLS = {  # those of which the bytes count, with their sizes
    "barrier": (0,),
    "exchange": (NBYTES,),
    "all_to_all": (NBYTES,),
    "broadcast": (NBYTES, 64 * KIB),
    "all_gather": (NBYTES, 64 * KIB),
}
JOBS = (2, 4, 8)  # ranks
BOUND_S = 120.0  # for any one answer; of the first, the import of PyTorch included


def job_test(call: str, ranks: int) -> str:
    return f"{call}_{ranks}"


def job_tests(ranks: int) -> dict[str, str]:
    """The call by the name of its test, as of an Entrant."""
    return {job_test(call, ranks): call for call in CALLS}


def steps(options: Options, jobs: bool) -> list[Step]:
    turns = 1 if options.quick else 2
    found = [Step(LATENCY, NBYTES, turns)]
    for call, sizes in CALLS.items() if jobs else ():
        found += [Step(job_test(call, ranks), nbytes, turns) for nbytes in sizes for ranks in JOBS]
    return found
