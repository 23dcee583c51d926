"""A second process on this machine that shares memory for trials, for as long as its parent lives."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from zerohop.doctor.address import decode, encode
from zerohop.doctor.trial import TIMEOUT_S, share
from zerohop.endpoint import Endpoint

START_S = 60.0  # it imports numpy and may start CUDA
EXIT_S = 10.0


class CounterpartFailed(RuntimeError):
    """The second process did not come up; says why."""


@contextmanager
def counterpart(device: str | None) -> Iterator[bytes]:
    """Runs the second process and gives its address; ends it afterwards."""
    command = [sys.executable, "-m", "zerohop.doctor.counterpart", *([device] if device else [])]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield _address(process)
        finally:
            process.kill()


def _address(process: subprocess.Popen[str]) -> bytes:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_S)
    if not ready:
        raise CounterpartFailed(f"the second process said nothing within {START_S:.0f} s")
    line = process.stdout.readline().strip()
    if not line:
        _, errors = process.communicate(timeout=EXIT_S)
        last = errors.strip().splitlines()[-1:] or [f"exit {process.returncode}"]
        raise CounterpartFailed(f"the second process did not start: {last[0]}")
    return decode(line)


def main(device: str | None) -> None:
    with Endpoint(device, timeout=TIMEOUT_S, p2p=1) as endpoint:
        share(endpoint)
        print(encode(endpoint.address), flush=True)
        sys.stdin.read()  # ends with the parent, however that ends


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
