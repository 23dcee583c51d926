"""Sources of counters: sockets of this user's processes on this host, and named addresses."""

from __future__ import annotations

import errno
import http.client
import os
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from zerohop.observe.runtime_folder import folders

_PATIENCE = 2.0  # seconds for one answer, from the connection to the end
_MOST = 32 << 20  # bytes of one answer
_AT_ONCE = 16
_YOUNG_S = 5.0  # within which a process listens on a socket that it has bound


@dataclass(frozen=True)
class Source:
    """name: for display. One of the other fields has the address."""

    name: str
    path: Path | None = None
    address: tuple[str, int] | None = None


@dataclass(frozen=True)
class Answer:
    """at: seconds of a monotonic clock. Either text or trouble is set."""

    source: Source
    at: float
    text: str = ""
    trouble: str = ""


class _Connection(http.client.HTTPConnection):
    def __init__(self, source: Source) -> None:
        host, port = source.address or ("localhost", 80)
        super().__init__(host, port, timeout=_PATIENCE)
        self._path = source.path
        self._opened: socket.socket | None = None  # `sock` is None while an answer is read
        self.is_late = False

    def connect(self) -> None:
        if self._path is None:
            super().connect()
        else:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(_PATIENCE)
            self.sock.connect(str(self._path))
        self._opened = self.sock
        if self.is_late:  # give_up() came before the socket was opened
            raise TimeoutError

    def give_up(self) -> None:
        """Ends the read; called from another thread."""
        self.is_late = True
        if self._opened is not None:
            with suppress(OSError):
                self._opened.shutdown(socket.SHUT_RDWR)


def local_sources() -> list[Source]:
    """The processes of this user on this host. Nobody else may write to those folders."""
    found = [path for folder in folders() for path in sorted(folder.glob("*.sock"))]
    return [Source(f"{path.stem.partition('-')[0]}", path=path) for path in found]


def named_source(text: str) -> Source:
    """'9400', 'host:9400' or 'http://host:9400/metrics'. Raises ValueError."""
    bare = text.removeprefix("http://").partition("/")[0]
    host, _, port = bare.rpartition(":")
    if not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise ValueError(
            f"{text!r} is not an address: write 9400, host:9400 or http://host:9400/metrics"
        )
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    return Source(bare if bare != port else f"127.0.0.1:{port}", address=(host, int(port)))


def ask_all(sources: Sequence[Source]) -> list[Answer]:
    """Asks all sources; leaves out processes that have ended since."""
    if not sources:
        return []
    with ThreadPoolExecutor(min(_AT_ONCE, len(sources))) as pool:
        return [answer for answer in pool.map(_ask, sources) if answer is not None]


def _ask(source: Source) -> Answer | None:
    connection = _Connection(source)
    bound = threading.Timer(_PATIENCE, connection.give_up)
    bound.start()
    try:
        text = _read(connection)
        return Answer(source, time.monotonic(), text=text)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if source.path is not None and _ended(source.path, error):
            return None
        why = str(error) or type(error).__name__
        if connection.is_late or isinstance(error, TimeoutError):
            why = f"its answer did not end within {_PATIENCE:.0f} s"
        return Answer(source, time.monotonic(), trouble=why)
    finally:
        bound.cancel()
        connection.close()


def _read(connection: _Connection) -> str:
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    if answer.status != http.client.OK:
        raise ValueError(f"it answers {answer.status} {answer.reason}")
    parts: list[bytes] = []
    nbytes = 0
    while part := answer.read1(1 << 16):
        parts.append(part)
        nbytes += len(part)
        if nbytes > _MOST:
            raise ValueError(f"its answer is longer than {_MOST >> 20} MiB")
    if connection.is_late:  # the answer may have been cut
        raise TimeoutError
    return b"".join(parts).decode()


def _ended(path: Path, error: Exception) -> bool:
    """Whether the process has ended; removes the socket that a killed process left."""
    if isinstance(error, FileNotFoundError):
        return True
    if not isinstance(error, OSError) or error.errno != errno.ECONNREFUSED:
        return False
    number = path.name.partition("-")[0]
    if number.isdecimal():
        with suppress(OSError):
            if _is_there(int(number)) and time.time() - path.stat().st_mtime < _YOUNG_S:
                return False
            path.unlink()
    return True


def _is_there(process: int) -> bool:
    """Whether that process exists; its number may have been reused."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
