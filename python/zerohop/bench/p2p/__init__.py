"""`zerohop bench p2p`: arrays of two processes of one host, on GPUs or with --host in host memory."""

from __future__ import annotations

from rich.console import Console

from zerohop.bench.p2p import between_gpus, in_host_memory
from zerohop.bench.plan import Options


def run(options: Options, console: Console) -> bool:
    """Measures and tells; False when ours failed or there is nothing to measure on."""
    if options.host:
        return in_host_memory.run(options, console)
    return between_gpus.run(options, console)
