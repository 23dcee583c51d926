"""Kernels on one GPU, the benchmark's or others: compiled by CuPy, launched, waited for and timed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from zerohop._endpoint.headers import compile_options
from zerohop.bench.plan import PeerFailed

SOURCE = Path(__file__).with_name("kernels.cu")
NAMES = (
    *("ping_pong_thread", "ping_pong_block", "bare_ping_pong"),
    *("put_many", "put_values", "post_values", "put_wide", "copy_wide"),
)
BOUND_S = 20.0  # for a launch: the waits in it end much earlier, by their own bounds
STATUSES = {  # zerohop::device::Status
    1: "waited in vain for 2 s",
    2: "left the bounds of an array",
    3: "may not write there",
    5: "named a slot that is not one of the board's",
    6: "found that no peer is left that could notify",
    7: "had an entry refused",
}


class Kernels:
    """Loads all of them at once: CUDA may block a kernel load while another kernel waits."""

    def __init__(self, ordinal: int, source: Path = SOURCE, names: Sequence[str] = NAMES) -> None:
        try:
            self._cupy: Any = import_module("cupy")
        except ImportError as error:
            why = f"CuPy, which compiles the kernels, is not installed ({error})"
            raise PeerFailed(f"{why}: pip install 'zerohop[cupy]'") from None
        self._cupy.cuda.Device(ordinal).use()
        self._stream = self._cupy.cuda.Stream(non_blocking=True)
        module = self._cupy.RawModule(code=source.read_text(), options=compile_options())
        module.compile()
        self._kernels = {name: module.get_function(name) for name in names}
        assert all(kernel.num_regs > 0 for kernel in self._kernels.values())  # loads them
        self._outcome = self._cupy.zeros(3, "uint64")
        self._events = [self._cupy.cuda.Event() for _ in range(2)]
        self._cupy.cuda.runtime.deviceSynchronize()

    def run(self, name: str, shape: tuple[int, int], *arguments: Any) -> tuple[float, float, float]:
        """Seconds: from begin to end by events, and the two times that the kernel measured with its clock.

        shape: blocks and threads. Raises PeerFailed for a status other than ok.
        """
        blocks, threads = shape
        begun, ended = self._events
        self._outcome.data.memset_async(0, self._outcome.nbytes, self._stream)
        begun.record(self._stream)
        kernel = self._kernels[name]
        kernel((blocks,), (threads,), (*arguments, self._outcome), stream=self._stream)
        ended.record(self._stream)
        self._await(name)
        # Fetched only now: a waiting copy would hold a lock of the whole context, which the zerohop thread
        # that serves the kernel needs.
        status, took, done_in = (int(word) for word in self._outcome.get(stream=self._stream))
        if status:
            raise PeerFailed(f"{name} {STATUSES.get(status, f'ended with status {status}')}")
        events_s = float(self._cupy.cuda.get_elapsed_time(begun, ended)) * 1e-3
        return events_s, took * 1e-9, done_in * 1e-9

    def _await(self, name: str) -> None:
        until = time.monotonic() + BOUND_S
        while not self._stream.done:
            if time.monotonic() > until:
                raise PeerFailed(f"{name} was still running after {BOUND_S:g} s")
