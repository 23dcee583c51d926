"""Makes a World of the ranks that a launcher has started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from zerohop._endpoint.rails import launcher_local_rank
from zerohop._world.failure_reports import described
from zerohop._world.launch import PATIENCE, job_from_environment
from zerohop._world.store import Store

if TYPE_CHECKING:
    from typing_extensions import Self


class LauncherCalls:
    """Part of World."""

    if TYPE_CHECKING:

        def __init__(
            self, store: Store | str | os.PathLike[str], rank: int, size: int, **options: Any
        ) -> None: ...

        def close(self) -> None: ...

    @classmethod
    def from_env(cls, store: Store | str | os.PathLike[str] | None = None, **options: Any) -> Self:
        """The World of the launcher that started this process, found by its environment variables.

        ``torchrun``, and whatever sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as for torch.distributed: through
        PyTorch's TCPStore, which is open to everyone who reaches its port, as with PyTorch itself. ``mpirun`` of Open MPI and
        MPICH: as ``from_mpi(MPI.COMM_WORLD)``. ``srun``: also through PyTorch's store, at MASTER_ADDR and MASTER_PORT if the job
        sets them; otherwise `store` must be given.

        store: another meeting place, as in World, such as a directory that all hosts see. options: as in World;
        ``timeout=`` also bounds the wait for the ranks to start (without it, 300 s).

        Raises Error, a RuntimeError (no known launcher, with the variables that are not set; no PyTorch, no
        mpi4py, no store), ValueError (an invalid variable), TransferTimeout (nobody runs the store), and the errors of
        from_mpi.
        """
        job = job_from_environment(os.environ, _patience(options), store)
        if job.store is None:
            from zerohop._world.mpi import everyone

            return cls.from_mpi(everyone(job), **options)
        return cls(job.store, job.rank, job.size, **options)

    @classmethod
    def from_mpi(cls, comm: Any, **options: Any) -> Self:
        """The World of an MPI communicator (mpi4py), also of one that was split. Every rank of it calls this.

        The ranks keep the communicator's numbers and exchange their addresses over it, once; the
        World itself does not use MPI, so MPI may be finalized before it. options: as in World, but without a known local rank
        the ranks of the host are counted; ``timeout=`` also bounds the wait for the other ranks (without it, 300 s).

        Raises TypeError and ValueError (no communicator, COMM_NULL, an intercommunicator), Error (MPI itself fails, or
        another rank cannot make its World), TransferTimeout (not all ranks call this), and the errors of World.
        """
        from zerohop._world.mpi import GatheredStore, Group

        group, store = Group(comm, _patience(options)), GatheredStore()
        counted = group.local_rank()  # before `try`: if it fails, fail() would fail, too
        try:
            if options.get("local_rank") is None:
                # The launcher counts ranks across its communicators, so two of them on one host get different GPUs.
                options["local_rank"] = launcher_local_rank(default=counted)
            world = cls(store, group.rank, group.size, **options)
        except Exception as error:
            store.fail(group, described(error))  # so that nobody waits for this rank
            raise
        try:
            store.gather(group)
        except BaseException:
            world.close()
            raise
        return world


def _patience(options: dict[str, Any]) -> float:
    """Seconds for all ranks to start."""
    timeout = options.get("timeout")
    return PATIENCE if timeout is None else timeout
