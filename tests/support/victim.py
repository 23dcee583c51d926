"""The last rank of a World, in a process that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from support.link import until
from support.patience import patient
from support.ranks import Job
from support.spawned import TESTS, is_stopped

# Comes to one barrier, then does nothing but live.
_VICTIM = """
import sys
import zerohop as zh

world = zh.World(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), device=sys.argv[4], timeout=60)
segment = world.segment(1 << 20, name="data")
world.barrier()
print("here", flush=True)
sys.stdin.read()
"""


class Victim:
    """Makes a segment "data" of 1 MiB, comes to one barrier, and then does nothing but live."""

    def __init__(self, job: Job, size: int) -> None:
        arguments = [str(job.directory), str(size - 1), str(size), job.device]
        self._process = subprocess.Popen(  # its case says p2p or not in the environment
            [sys.executable, "-c", _VICTIM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(TESTS)])},
        )

    def signal(self, number: int) -> float:
        """Returns when that was (time.monotonic()): of those that stop and kill, when they have done so."""
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            until(lambda: is_stopped(self._process.pid), "the victim has stopped")
        if number == signal.SIGKILL:
            self._process.wait(patient(10))
        return time.monotonic()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
