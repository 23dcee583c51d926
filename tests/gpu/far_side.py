"""Another process with an Endpoint and arrays on a GPU, which does what it is told."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

POISON = 0xA5
DEADLINE = 60.0  # seconds for an answer


def allocate(kind: str, nbytes: int, device: str, endpoint: Any) -> Any:
    """A poisoned uint8 array on that GPU, as a torch tensor, and what keeps it."""
    import torch
    from cuda.bindings import driver
    from device_memory import check, tensor

    if kind == "cudaMalloc":
        return torch.full((nbytes,), POISON, dtype=torch.uint8, device=device)
    if kind == "own":
        array = torch.from_dlpack(endpoint.empty(nbytes, "uint8", device=device))
        return array.fill_(POISON)
    if kind == "pool":
        address = int(check(driver.cuMemAllocAsync(nbytes, 0)))  # as long as the process lives
        return tensor(address, nbytes).fill_(POISON)
    raise ValueError(kind)


def serve(connection: Any, p2p: bool, setup: str) -> None:
    """Runs code; the value of `answer` goes back."""
    import torch
    import zerohop as zh

    torch.zeros(1, device="cuda:0")  # makes the context that cuda-bindings finds
    endpoint = zh.Endpoint("soft0", p2p=p2p, timeout=30.0)
    names: dict[str, Any] = {"ep": endpoint, "zh": zh, "torch": torch, "allocate": allocate}
    exec(setup, names)  # noqa: S102
    connection.send(endpoint.address)
    while (code := connection.recv()) is not None:
        names["answer"] = None
        try:
            exec(code, names)  # noqa: S102
            torch.cuda.synchronize()
            connection.send((True, names["answer"]))
        except BaseException as error:  # noqa: BLE001  the test judges it
            connection.send((False, repr(error)))
    endpoint.close()


class FarSide:
    def __init__(self, p2p: bool = True, setup: str = "") -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self.process = context.Process(target=serve, args=(there, p2p, setup), daemon=True)
        self.process.start()
        there.close()
        self.address: bytes = self._receive()

    def _receive(self) -> Any:
        if not self._here.poll(DEADLINE):
            raise TimeoutError("the other process does not answer")
        return self._here.recv()

    def begin(self, code: str) -> None:
        self._here.send(code)

    def finish(self) -> Any:
        good, answer = self._receive()
        assert good, answer
        return answer

    def run(self, code: str) -> Any:
        self.begin(code)
        return self.finish()

    def close(self) -> None:
        with suppress(BrokenPipeError):  # a test has killed it
            self._here.send(None)
        self.process.join(10)
        self.process.kill()
        self.process.join(10)


@contextmanager
def far_side(p2p: bool = True, setup: str = "") -> Iterator[FarSide]:
    side = FarSide(p2p, setup)
    try:
        yield side
    finally:
        side.close()
