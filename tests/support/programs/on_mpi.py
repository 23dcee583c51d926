"""The steps of a program as calls of a communicator of MPI."""

from typing import Any

import numpy as np
from mpi4py import MPI

from support.programs.model import Part, Program, Step, close_to, neighbours, parts
from support.programs.on_world import Finish

_OPS = {
    "sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX, "band": MPI.BAND, "bor": MPI.BOR,
    "bxor": MPI.BXOR, "land": MPI.LAND, "lor": MPI.LOR,
}  # fmt: skip


class OnMpi:
    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()

    def perform(self, program: Program, number: int) -> Finish:
        step = program.steps[number]
        part = parts(program, number, self.size)[self.rank]
        came = None if part.got is None else np.zeros_like(part.got)
        self._call(step, part, came)

        def finish() -> str:
            if part.got is None:
                return ""
            if step.op in ("land", "lor"):  # what MPI did not combine it leaves as it is
                came[:] = came != 0
            if close_to(program, number, self.size, came, part.got):
                return ""
            return f"{came}, not {part.got}"

        return finish

    def _call(self, step: Step, part: Part, came: Any) -> None:
        comm, root = self._comm, step.root % self.size
        sent, counts, got_counts = part.sent, part.counts, part.got_counts
        match step.call:
            case "barrier":
                comm.Barrier()
            case "broadcast":
                if sent is not None:
                    came[:] = sent
                comm.Bcast(came, root)
            case "scatter":
                comm.Scatterv(None if sent is None else [sent, counts], came, root)
            case "gather":
                comm.Gatherv(sent, None if came is None else [came, got_counts], root)
            case "all_gather":
                comm.Allgatherv(sent, [came, got_counts])
            case "all_to_all":
                comm.Alltoallv([sent, counts], [came, got_counts])
            case "all_reduce" | "number":
                comm.Allreduce(sent, came, _OPS[step.op])
            case "reduce":
                comm.Reduce(sent, came, _OPS[step.op], root)
            case "scan":
                comm.Scan(sent, came, _OPS[step.op])
            case "reduce_scatter":
                comm.Reduce_scatter(sent, came, counts, _OPS[step.op])
            case "ring":
                to, source = neighbours(step, self.rank, self.size)
                comm.Sendrecv(sent, to, 0, came, source, 0)
            case "pair":
                to, source = neighbours(step, self.rank, self.size)
                if to is not None:
                    comm.Send(sent, to)
                if source is not None:
                    comm.Recv(came, source)
