"""A Slurm of one host, of this user alone: its two daemons, in a folder."""

import os
import pwd
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.link import until
from support.program import run

# man slurm.conf. Nobody authenticates here: no MUNGE. Processes are not held by cgroups.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=4
PartitionName=all Nodes=ALL Default=YES
"""


def free_ports() -> tuple[int, int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        first, second = (each.getsockname()[1] for each in sockets)
        return first, second


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """The variables by which srun finds it, with four processors."""
    host = socket.gethostname().split(".")[0]
    controller, daemon = free_ports()
    user = pwd.getpwuid(os.getuid()).pw_name
    path = folder / "slurm.conf"
    path.write_text(
        CONFIGURATION.format(
            host=host, controller=controller, daemon=daemon, user=user, folder=folder
        )
    )
    variables = {"SLURM_CONF": str(path)}
    environment = {**os.environ, **variables}
    with ExitStack() as running:
        for name in ("slurmctld", "slurmd"):
            log = running.enter_context((folder / f"{name}.log").open("w"))
            process = subprocess.Popen(
                [f"/usr/sbin/{name}", "-D", "-f", str(path)],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            running.callback(process.wait)
            running.callback(process.kill)

        def is_idle() -> bool:
            reported = run("sinfo", "--noheader", "--format=%T", env=environment, seconds=30)
            return reported.stdout.strip() == "idle"

        until(is_idle, f"a node that is idle: see {folder}/slurm*.log", 30)
        yield variables
