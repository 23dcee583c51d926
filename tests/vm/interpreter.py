"""Python processes in guests that a test on the host tells what to do.

Words and answers go through the virtual machine's own port, so they arrive whatever becomes of the
wires between the guests.
"""

import json
import textwrap
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vm.guest import Guest
from vm.pair import Pair

SCRIPT = Path(__file__).with_name("interpreter_guest.py")
START_TIMEOUT = 180.0  # seconds; the first import in a guest reads every file through 9p


class RemoteError(Exception):
    """What a piece of code raised in the guest."""

    def __init__(
        self, kind: str, message: str, code: int | None, effect: str | None, seconds: float
    ) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.code, self.effect, self.seconds = kind, code, effect, seconds


class Interpreter:
    """`run` waits for a piece of code, `begin` and `finish` do so in two steps."""

    def __init__(self, guest: Guest, setup: str) -> None:
        self._changed = threading.Condition()
        self._rest = b""
        self._heard: list[dict[str, Any]] = []
        self._command = guest.start([guest.machine.python, SCRIPT], sink=self._take)
        self.begin(setup)

    def wait_ready(self) -> None:
        """Waits until it has started and its setup is done."""
        self.heard("ready", START_TIMEOUT)
        self.finish(START_TIMEOUT)

    def _take(self, stream: int, data: bytes) -> None:
        if stream != 1:
            return
        with self._changed:
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._heard += [json.loads(line) for line in lines]
            self._changed.notify_all()

    def _next(self, key: str, timeout: float, *others: str) -> dict[str, Any]:
        """The first message with `key` or one of `others`; what was said before it is dropped."""

        def look() -> dict[str, Any] | None:
            while self._heard:
                message = self._heard.pop(0)
                if any(name in message for name in (key, *others)):
                    return message
            return None

        with self._changed:
            found: list[dict[str, Any]] = []

            def arrived() -> bool:
                message = look()
                if message is not None:
                    found.append(message)
                return bool(found) or self._command.ended

            self._changed.wait_for(arrived, timeout)
            if found:
                return found[0]
        raise AssertionError(f"no answer within {timeout:.0f} s\n{self._command.report()}")

    def begin(self, code: str) -> None:
        line = json.dumps(textwrap.dedent(code)) + "\n"
        self._command.write(line.encode())

    def heard(self, text: str, timeout: float) -> None:
        """Waits until the code that runs has said `text`."""
        message = self._next("said", timeout, "failed", "done")
        if "failed" in message:
            raise RemoteError(**message["failed"])
        assert message == {"said": text}, message

    def finish(self, timeout: float) -> Any:
        """The `answer` of the piece begun last. Raises RemoteError if it raised."""
        message = self._next("done", timeout, "failed")
        if "failed" in message:
            raise RemoteError(**message["failed"])
        return message["done"]

    def run(self, code: str, timeout: float = 60.0) -> Any:
        self.begin(code)
        return self.finish(timeout)

    def close(self) -> None:
        """Ends its input; it leaves its endpoints as any program does."""
        self._command.write(None)
        self._command.wait(60.0)


@dataclass
class Programs:
    """One in each guest; `with` waits until they are ready, and ends them where the guest still runs."""

    pair: Pair
    a: Interpreter
    b: Interpreter

    def __enter__(self) -> Any:
        for program in (self.a, self.b):
            program.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        for program, guest in zip((self.a, self.b), self.pair.guests, strict=True):
            if guest.process.poll() is None:
                program.close()

    def meet(self, connect: str) -> None:
        """Both have `ep`: each has the `peer` of the other from here on."""
        address = self.b.run("answer = ep.address.hex()")
        self.b.begin("peer = ep.accept(timeout=60)")
        self.a.run(f"peer = {connect}(bytes.fromhex({address!r}))", timeout=120)
        self.b.finish(60)

    def check_sum(self, seed: int, call: str) -> None:
        """call: of a, up to its notify=; it puts `data` into b's inbox. b finds it there when it sees the notification."""
        self.b.begin(
            "slot = ep.wait_notify(7, timeout=60); "
            "answer = [slot, int(np.asarray(inbox).astype(np.int64).sum())]"
        )
        expected = self.a.run(f"""
            data = np.random.default_rng({seed}).integers(0, 256, nbytes, np.uint8)
            {call}, notify=(7, {seed})).wait()
            answer = int(data.astype(np.int64).sum())
        """)
        assert self.b.finish(60) == [seed, expected]
