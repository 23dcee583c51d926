"""One run of a partner function, the same code in a thread and in a process."""

import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import zerohop as zh

from support import arrays
from support.link import DEFAULT_TIMEOUT, Link
from support.patience import patient

TIMEOUT = patient(10.0)  # seconds; the default bound of every endpoint made for a test
VARIABLES = ("ZEROHOP_P2P", "ZEROHOP_REGISTRATION")  # what the `device` fixture says in them


def environment() -> dict[str, str]:
    return {name: os.environ.get(name, "") for name in VARIABLES}


@dataclass(frozen=True)
class Case:
    """What a partner has to do: `function(endpoint, peer, link, *args)` of the file at `path`."""

    path: str
    function: str
    device: str
    args: tuple[Any, ...] = ()
    connected: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    # As in the test's process: a partner process is kept from one case to the next.
    environment: dict[str, str] = field(default_factory=environment)

    def open_endpoint(self) -> zh.Endpoint:
        os.environ.update(self.environment)
        return zh.Endpoint(self.device, **{"timeout": TIMEOUT, **self.options})


def load_function(case: Case) -> Callable[..., None]:
    """The partner function, from its file (a process does not share the test's modules)."""
    name = "case_" + Path(case.path).stem
    module = sys.modules.get(name) or _load_module(name, case.path)
    return getattr(module, case.function)


def _load_module(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, f"cannot load {path}"
    assert spec.loader is not None, f"cannot load {path}"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def perform(case: Case, function: Callable[..., None], control: Connection, link: Link) -> None:
    """Runs one case and reports on `control`: "address", then "returned" or "failed", "closed".

    Between "returned" and "closed" the endpoint goes on serving until the test sends "release".
    """
    arrays.side.set(1)
    try:
        with case.open_endpoint() as endpoint:
            _report(control, "address", endpoint.address)
            peer = endpoint.accept(timeout=DEFAULT_TIMEOUT) if case.connected else None
            function(endpoint, peer, link, *case.args)
            _report(control, "returned", None)
            _await_release(control)
        _report(control, "closed", None)
    except BaseException:  # noqa: BLE001  whatever it is, the waiting test gets it
        link.close()
        _report(control, "failed", traceback.format_exc())
    finally:
        link.close()


def _report(control: Connection, kind: str, value: Any) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # the test has failed and left
        control.send((kind, value))


def _await_release(control: Connection) -> None:
    with suppress(EOFError, ConnectionResetError):
        if control.poll(DEFAULT_TIMEOUT):
            control.recv()
