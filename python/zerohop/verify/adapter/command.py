"""`zerohop verify --adapter`: the far end that listens, or the near end that runs the steps and reports."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from zerohop import verbs
from zerohop.doctor.far_end import encode
from zerohop.verify.adapter.channel import split_address
from zerohop.verify.adapter.end import split_device
from zerohop.verify.adapter.facts import host_facts
from zerohop.verify.adapter.far import Listener
from zerohop.verify.adapter.report import as_dict, page
from zerohop.verify.adapter.runner import STEPS, Runner
from zerohop.verify.adapter.setup import Spec
from zerohop.verify.adapter.step import FAIL, Result

STDOUT = "-"


@dataclass(frozen=True)
class Options:
    """device: "" for the first that is found. to: the device or port of the far end on this host. json: a file, or STDOUT."""

    device: str = ""
    to: str = ""
    peer: bytes | None = None
    quick: bool = False
    json: str = ""


def choose(device: str) -> str:
    """Raises ValueError for a name that no device has."""
    names = verbs.devices()
    if not device:
        return names[0]
    name, _ = split_device(device)
    if "@" not in name and name not in names:
        raise ValueError(f"there is no device {name}: there are {', '.join(names)}")
    return device


def run(options: Options) -> bool:
    """Whether no step failed; prints the page, also before it raises KeyboardInterrupt. ValueError: options that cannot be."""
    device = choose(options.device)
    if options.peer is not None:
        _, host, port = split_address(options.peer)
        return _report(options, device, options.peer, f"this host and {host}:{port}")
    other = choose(options.to) if options.to else device
    how = f"{device} and {other} of this host" if other != device else f"two processes on {device}"
    with Listener(other, local=True) as listener:
        return _report(options, device, listener.address, how)


def _report(options: Options, device: str, address: bytes, how: str) -> bool:
    facts = host_facts(device)
    print(f"{facts['what it is']}; {len(STEPS)} steps", file=sys.stderr)
    spec = Spec(device, address, options.quick)
    interrupted = False
    with Runner(spec, on_result=_tell) as runner:
        try:
            runner.run()
        except KeyboardInterrupt:
            interrupted = True
    results = list(runner.results.values())
    value = as_dict(facts, how, results)
    text = json.dumps(value, indent=2, allow_nan=False)
    if options.json and options.json != STDOUT:
        Path(options.json).write_text(text + "\n")
    print(text if options.json == STDOUT else page(facts, how, results))
    if interrupted:
        raise KeyboardInterrupt
    return bool(value["good"])


def _tell(result: Result) -> None:
    why = f": {result.cause}" if result.outcome == FAIL else ""
    print(f"{result.outcome:17} {result.name}{why}", file=sys.stderr, flush=True)


def listen(device: str, place: str) -> None:
    """Prints an address and serves near ends, one at a time, until interrupted. place: "host:port", "" for any."""
    host, _, port = place.rpartition(":")
    if place and not (host and port.isdecimal() and int(port) < 1 << 16):
        raise ValueError(f"{place!r} is not HOST:PORT")
    device = choose(device)
    with Listener(device, host.strip("[]"), int(port or 0)) as listener:
        print(encode(listener.address), flush=True)
        print(f"serving on {device}", file=sys.stderr)
        if device == "soft0":
            hint = "only processes of this host reach it; across hosts use soft0@INTERFACE on both"
            print(hint, file=sys.stderr)
        listener.join()
