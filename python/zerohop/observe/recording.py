"""Records transfers and waits of this process as a trace for Perfetto or chrome://tracing.

Source: Trace Event Format, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from uuid import uuid4

from zerohop import _core
from zerohop._endpoint.numbers import whole
from zerohop._world.entries import boot_id
from zerohop._world.launch import launched

if TYPE_CHECKING:
    from typing_extensions import Self

_MOST = 65536  # events kept by default: 20 MB
_ALL = 1 << 26
_FAR = 1 << 63  # beyond any time or count
_SIDES = {
    "write": "to",
    "send": "to",
    "notify": "to",
    "read": "from",
    "recv": "from",
    "atomic": "at",
}


class record:
    """Record the transfers and notifications of this process, and write them as a trace.

    ::

        with zh.record("trace.json") as recording:
            peer.write(source, target).wait()
        print(recording.dropped)

    Each transfer of any Endpoint that begins meanwhile: operation, peer, route, device, bytes, when it was
    posted, when this process saw it done, and its error, if any. Each notification that ``wait_notify()`` or
    ``reset_notify()`` took: slot, value, and the time waited; streams and kernels that take notifications are
    not recorded. https://ui.perfetto.dev opens the file. Times are those of ``time.monotonic_ns()``, which processes of
    one host share; ``zerohop merge`` merges the files of several processes.

    Args:
        path: the file, written when the ``with`` ends, also by an exception: completely or not at all. A symbolic link is kept and
            points to the new file; a device or pipe is written to.
        events: how many are kept, at most; later ones are counted in ``dropped`` and in the file. Each takes
            about 300 bytes of memory until the file is written, and then another KB.
        name: name of this process in the trace. Default: its rank, from the launcher, its host and process number.

    Without a recording it costs a transfer one check of a flag; with one, about 100 ns. Only one at a time in a process. A
    forked child has no recording, and writes no file.

    Raises RuntimeError (this process is already being recorded), OSError (the file cannot be written: at once if the
    folder is missing or not writable), TypeError, ValueError.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, events: int = _MOST, name: str | None = None
    ) -> None:
        self._path = Path(path)
        self._most = whole("events", events)
        if not 1 <= self._most <= _ALL:
            raise ValueError(f"events must be from 1 to {_ALL}, not {events}")
        self._name = _default_name() if name is None else name
        self._process = 0
        self.dropped = 0  # events that did not fit, known at the end

    def __enter__(self) -> Self:
        place = _replaced(self._path)
        if place is not None:
            try:
                with tempfile.TemporaryFile(dir=place.parent):
                    pass  # raises now what would fail at the end
            except OSError as error:
                error.filename = str(self._path)
                raise
        _core.start_recording(self._most)
        self._process = os.getpid()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process != os.getpid():
            return
        events, self.dropped = _core.stop_recording()
        write_whole(self._path, _all_rows(events, self._name), _about(self.dropped))


os.register_at_fork(after_in_child=_core.forget_recording)


def write_whole(path: Path, rows: Iterable[Mapping[str, Any]], about: Mapping[str, Any]) -> None:
    """Writes one row per line. Raises OSError; then the file is unchanged."""
    place = _replaced(path)
    if place is None:
        with path.open("w") as file:
            return _write(file, rows, about)
    draft = place.with_name(f".{uuid4().hex[:10]}")  # shorter than most names: none is too long
    try:
        with draft.open("x") as file:
            _write(file, rows, about)
        draft.replace(place)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def _write(file: TextIO, rows: Iterable[Mapping[str, Any]], about: Mapping[str, Any]) -> None:
    file.write('{"displayTimeUnit":"ns","otherData":')
    file.write(json.dumps(about) + ',"traceEvents":[')
    file.writelines(
        (",\n" if number else "\n") + json.dumps(row, separators=(",", ":"))
        for number, row in enumerate(rows)
    )
    file.write("\n]}\n")


def _replaced(path: Path) -> Path | None:
    """The target of symbolic links; None: it is not a regular file, but a device or pipe. Raises OSError."""
    with suppress(FileNotFoundError):
        # stat() follows the link: /dev/stdout may lead to a pipe, which has no path.
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            return None
    return Path(os.path.realpath(path))


def _default_name() -> str:
    where = f"{socket.gethostname()}:{os.getpid()}"
    with suppress(ValueError):
        launch = launched(os.environ)
        if launch is not None:
            return f"rank {launch.rank}, {where}"
    return where


def _all_rows(events: Iterable[Mapping[str, Any]], name: str) -> Iterator[dict[str, Any]]:
    pid = os.getpid()
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    for number, event in enumerate(events):
        yield from _rows(event, pid, number)


def _about(dropped: int) -> dict[str, Any]:
    return {
        "clock": "CLOCK_MONOTONIC",
        "host": socket.gethostname(),
        "boot": boot_id(),
        # The offset of its times that makes them comparable between hosts, as far as their clocks agree.
        "epoch_minus_clock_ns": time.time_ns() - time.monotonic_ns(),
        "events_dropped": dropped,
    }


def _rows(event: Mapping[str, Any], pid: int, number: int) -> Iterator[dict[str, Any]]:
    """Asynchronous events, because transfers overlap, and begin in one thread and end in another."""
    what, ended = event["what"], event["end"] is not None
    about: dict[str, Any]
    if what in _SIDES:
        title = f"{what} {_SIDES[what]} {event['peer']} by {event['route']}"
        about = {key: event[key] for key in ("peer", "route", "device", "nbytes")}
        if ended and event["failure"]:
            about["error"] = event["failure"]
        if not ended:
            about["under way"] = True
    else:
        title, about = what, {"slot": event["slot"], "value": event["value"]}
    kind = "transfer" if what in _SIDES else "notification"
    row = {"name": title, "cat": kind, "id2": {"local": hex(number)}, "pid": pid, "tid": 0}
    yield {**row, "ph": "b", "ts": _microseconds(event["begin"]), "args": about}
    if ended:
        yield {**row, "ph": "e", "ts": _microseconds(event["end"])}


def _microseconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1e3, 3)


def _is_ours(trace: Any) -> bool:
    if not isinstance(trace, Mapping):
        return False
    rows, about = trace.get("traceEvents"), trace.get("otherData")
    return (
        isinstance(about, Mapping)
        and isinstance(about.get("boot"), str)
        and all(_is_number(about.get(name)) for name in ("epoch_minus_clock_ns", "events_dropped"))
        and isinstance(rows, list)
        and all(isinstance(row, Mapping) and isinstance(row.get("pid"), int) for row in rows)
        and all(_is_number(row.get("ts", 0)) for row in rows)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and -_FAR < value < _FAR  # NaN is not


def merged(
    traces: Iterable[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], dict[str, Any]]:
    """Rows of several processes, and the metadata of all of them.

    Times of other hosts are shifted to the first host's by their clocks.

    Raises ValueError: one is not a trace of `record`.
    """
    rows: list[Mapping[str, Any]] = []
    others: list[Mapping[str, Any]] = []
    taken: dict[int, int] = {}  # process number: trace
    for index, trace in enumerate(traces):
        if not _is_ours(trace):
            raise ValueError(f"file {index + 1} is not a trace of zerohop.record()")
        other = trace["otherData"]
        others.append(other)
        shift = 0.0
        if other["boot"] != others[0]["boot"]:
            shift = (other["epoch_minus_clock_ns"] - others[0]["epoch_minus_clock_ns"]) / 1e3
        numbers: dict[int, int] = {}
        for row in trace["traceEvents"]:
            pid = numbers.get(row["pid"])
            if (
                pid is None
            ):  # processes on two hosts, or one process twice, may have the same number
                pid = row["pid"]
                while taken.setdefault(pid, index) != index:
                    pid += 1 << 22  # the highest process number of Linux
                numbers[row["pid"]] = pid
            moved = {"ts": round(row["ts"] + shift, 3)} if "ts" in row else {}
            rows.append({**row, "pid": pid, **moved})
    dropped = sum(other["events_dropped"] for other in others)
    return rows, {**(others[0] if others else {}), "events_dropped": dropped}
