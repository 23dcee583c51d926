"""One virtual machine: started, asked to run commands, killed."""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from vm import qemu
from vm.command import Command, Sink
from vm.initramfs import write_initramfs
from vm.qemu import REPOSITORY, Machine
from vm.qmp import Qmp
from vm.unavailable import Unavailable

BOOT_TIMEOUT = 300.0  # seconds; 5 is usual, a busy machine needs many
# Emulated processors now and then run into an instruction that another one is just changing (the
# kernel's jump labels), and the kernel panics. Nothing of ours has run by then.
BOOTS = 3


def python() -> Path:
    """The Python of the environment in use, else that of .venv, else the one that runs this."""
    own = REPOSITORY / ".venv/bin/python"
    in_environment = sys.prefix != sys.base_prefix
    return own if own.exists() and not in_environment else Path(sys.executable)


class Guest:
    """Boots at once; `with` waits until it is ready and kills it at the end."""

    def __init__(self, machine: Machine, name: str = "guest") -> None:
        self.machine, self.name = machine, name
        self._ready = threading.Event()
        self._lock = threading.Lock()  # guards the two below and the writing side of the agent
        self._commands: dict[int, Command] = {}
        self._last = 0
        with ExitStack() as stack:  # nothing is left behind if QEMU does not start
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zerohop-vm-")))
            self._log = folder / "console.log"
            self._initramfs = folder / "initramfs"
            write_initramfs(machine.kernel, machine.fabric, self._initramfs)
            self._boot()
            self._stack = stack.pop_all()

    def _boot(self) -> None:
        with ExitStack() as stack:
            self._agent, agent = map(stack.enter_context, socket.socketpair())
            self.qmp, qmp = Qmp.pair()
            stack.callback(self.qmp.close)
            with agent, qmp:
                self.process = qemu.start(self.machine, self._initramfs, agent, qmp, self._log)
            stack.pop_all()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_ready(self, timeout: float = BOOT_TIMEOUT) -> None:
        deadline = time.monotonic() + timeout
        boots = 1
        while not self._ready.wait(0.05):
            if self.process.poll() is None and time.monotonic() < deadline:
                continue
            self.kill()
            if boots < BOOTS and "Kernel panic" in self.console():
                boots += 1
                self._boot()
                continue
            raise Unavailable(
                f"{self.name} did not start ({boots} tries, at most {timeout:.0f} s; QEMU's exit "
                f"status: {self.process.poll()}); its console said:\n{self.console()}"
            )

    def console(self) -> str:
        """What the kernel and the set-up have printed."""
        return self._log.read_text(errors="replace")[-8000:] if self._log.exists() else ""

    def start(
        self,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        cwd: str | Path = REPOSITORY,
        sink: Sink | None = None,
    ) -> Command:
        """Starts a command in the guest, with this process's environment and `env` on top."""
        path = os.pathsep.join([str(self.machine.python.parent), os.environ.get("PATH", "")])
        words = [str(word) for word in argv]
        with self._lock:
            self._last += 1
            command = Command(self._last, words, self._send, sink)
            self._commands[command.number] = command
        environment = {**os.environ, "PATH": path, **(env or {})}
        self._send(run=command.number, argv=words, env=environment, cwd=str(cwd))
        return command

    def run(self, argv: Sequence[str | Path], timeout: float, **options: Any) -> str:
        """Runs a command to its end and returns its standard output; failures raise."""
        return self.start(argv, **options).check(timeout)

    def _send(self, **order: Any) -> None:
        if isinstance(order.get("data"), bytes):
            order["data"] = base64.b64encode(order["data"]).decode()
        if self.process.poll() is not None:
            raise Unavailable(f"{self.name} is not running any more")
        line = json.dumps(order).encode() + b"\n"
        with self._lock:
            self._agent.sendall(line)

    def _read(self) -> None:
        rest = b""
        try:
            while chunk := self._agent.recv(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        except OSError:  # the descriptor was closed under us by kill()
            pass
        with self._lock:
            commands = list(self._commands.values())
        for command in commands:
            command.on_end(None, f"{self.name} is gone; its console said:\n{self.console()}")

    def _take(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._ready.set()
        elif "out" in message:
            data = base64.b64decode(message["data"])
            self._commands[message["out"]].on_output(message["stream"], data)
        elif "end" in message:
            self._commands[message["end"]].on_end(message["status"])

    def kill(self) -> None:
        """Pulls the plug: what ran in it never gets to say goodbye. Idempotent."""
        self.process.kill()
        self.process.wait(10)
        self._reader.join(10)  # QEMU's end of the socket is closed now
        self._agent.close()
        self.qmp.close()

    def __enter__(self) -> Guest:  # noqa: PYI034  Self needs Python 3.11
        try:
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        self.kill()
        self._stack.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
