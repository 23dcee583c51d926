"""Inside a guest: runs the commands that come over a virtio port. Host side: guest.py.

One JSON object a line. To the guest: {"run": id, "argv", "env", "cwd"}, {"input": id, "data"} (null
ends it), {"kill": id, "signal"}. From it: {"ready": true}, {"out": id, "data", "stream": 1 or 2},
{"end": id, "status"}. Data is base64; status is negative when a signal ended the command.
"""

import base64
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any


class Agent:
    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = threading.Lock()  # one line at a time
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def send(self, **message: Any) -> None:
        line = json.dumps(message).encode() + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._port, line) :]

    def lines(self) -> Iterator[dict[str, Any]]:
        rest = b""
        while chunk := os.read(self._port, 65536):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield json.loads(line)

    def serve(self) -> None:
        self.send(ready=True)
        for order in self.lines():
            if "run" in order:
                self.start(order["run"], order["argv"], order["env"], order["cwd"])
            elif "input" in order:
                self.feed(order["input"], order["data"])
            elif "kill" in order and order["kill"] in self._running:
                with suppress(ProcessLookupError):
                    os.killpg(self._running[order["kill"]].pid, order["signal"])

    def start(self, number: int, argv: list[str], env: dict[str, str], cwd: str) -> None:
        try:
            process = subprocess.Popen(
                argv,
                env=env,
                cwd=cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            data = base64.b64encode(f"{argv[0]}: {error.strerror}\n".encode()).decode()
            self.send(out=number, data=data, stream=2)
            self.send(end=number, status=127)
            return
        self._running[number] = process
        threading.Thread(target=self.watch, args=(number, process), daemon=True).start()

    def watch(self, number: int, process: subprocess.Popen[bytes]) -> None:
        streams = [(process.stdout, 1), (process.stderr, 2)]
        pumps = [
            threading.Thread(target=self.pump, args=(number, *s), daemon=True) for s in streams
        ]
        for pump in pumps:
            pump.start()
        status = process.wait()
        for pump in pumps:
            pump.join(5.0)  # an orphan may hold the pipe open for ever
        self.send(end=number, status=status)

    def pump(self, number: int, stream: IO[bytes], name: int) -> None:
        while data := os.read(stream.fileno(), 32768):
            self.send(out=number, data=base64.b64encode(data).decode(), stream=name)

    def feed(self, number: int, data: str | None) -> None:
        process = self._running.get(number)
        if process is None or process.stdin is None or process.stdin.closed:
            return
        with suppress(BrokenPipeError):
            if data is None:
                process.stdin.close()
            else:
                process.stdin.write(base64.b64decode(data))
                process.stdin.flush()


def main() -> None:
    (path,) = Path("/dev").glob("vport*p1")
    Agent(os.open(path, os.O_RDWR)).serve()


if __name__ == "__main__":
    main()
