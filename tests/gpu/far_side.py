"""Another process with an Endpoint and arrays on a GPU, which does what it is asked."""

import gc
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

THEIRS = [f"cuda:{i}" for i in range(min(2, torch.cuda.device_count()))]  # of the other process
ADAPTER = os.environ.get("ZEROHOP_TEST_ADAPTER", "soft0")  # of both sides
POISON = 0xA5
DEADLINE = 60.0  # seconds for an answer


def allocate(kind: str, nbytes: int, device: str, endpoint: Any) -> Any:
    """A poisoned uint8 array on that GPU, as a torch tensor, and what keeps it."""
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


def serve(connection: Any) -> None:
    """One test after the other, each with an Endpoint of its own."""
    torch.zeros(1, device="cuda:0")  # makes the context that cuda-bindings finds
    while (test := connection.recv()) is not None:
        serve_test(connection, *test)
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        connection.send("ready for the next")


def serve_test(connection: Any, p2p: bool, setup: str) -> None:
    """Runs code; the value of `answer` goes back."""
    import zerohop as zh

    with zh.Endpoint(ADAPTER, p2p=p2p, timeout=30.0) as endpoint:
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


class FarProcess:
    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self.process = context.Process(target=serve, args=(there,), daemon=True)
        self.process.start()
        there.close()

    def send(self, what: Any) -> None:
        self._here.send(what)

    def receive(self) -> Any:
        if not self._here.poll(DEADLINE):
            raise TimeoutError("the other process does not answer")
        return self._here.recv()

    def end_test(self) -> bool:
        """Whether it can serve another one."""
        with suppress(OSError, EOFError, TimeoutError):  # a test has killed it, or it hangs
            self.send(None)
            return bool(self.receive() == "ready for the next")
        return False

    def end(self) -> None:
        self.process.kill()
        self.process.join(10)


class FarSide:
    """What a test has of the other process."""

    def __init__(self, far: FarProcess, p2p: bool, setup: str) -> None:
        self._far = far
        self.process = far.process
        far.send((p2p, setup))
        self.address: bytes = far.receive()

    def hold(self, kind: str, nbytes: int, device: str) -> None:
        """Its `array`, registered as `memory`, is shared by the name "array"."""
        self.run(f"array = allocate({kind!r}, {nbytes}, {device!r}, ep)")
        self.run('memory = ep.register(array); ep.share("array", memory)')

    def begin(self, code: str) -> None:
        self._far.send(code)

    def begin_rounds(self, count: int) -> None:
        """In each it awaits slot 7, looks whether all of `array` is the round's number, and answers in slot 8."""
        self.begin(f"""
back = ep.accept()
answer = []
for value in range(1, {count + 1}):
    ep.wait_notify(7)
    answer.append(bool((array == value).all()))
    back.notify(8, value)
""")

    def finish(self) -> Any:
        good, answer = self._far.receive()
        assert good, answer
        return answer

    def run(self, code: str) -> Any:
        self.begin(code)
        return self.finish()


idle: list[FarProcess] = []  # they wait for another test: to start one takes seconds


@contextmanager
def far_side(p2p: bool = True, setup: str = "", *, fresh: bool = False) -> Iterator[FarSide]:
    """Another process; `fresh`: one that has read today's environment, and that no other test gets."""
    far = FarProcess() if fresh or not idle else idle.pop()
    try:
        yield FarSide(far, p2p, setup)
    finally:
        if far.end_test() and not fresh:
            idle.append(far)
        else:
            far.end()
