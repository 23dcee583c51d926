"""Objects that were never made, as tracebacks and __new__() hand them out: each use is refused, and no crash."""

import traceback
import types
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import zerohop as zh
from zerohop import _core

NEVER_MADE = r"never made: its __init__\(\) has failed, or was not called"
NOT_HELD = "from non-held to held instance"  # pybind11's own refusal, where a call shares what it is called on


def bound_types(scope: Any) -> Iterator[type]:
    """Those of C++, with those of submodules."""
    for member in vars(scope).values():
        if isinstance(member, type) and type(member).__name__ == "pybind11_type":
            yield member
            yield from bound_types(member)
        elif isinstance(member, types.ModuleType):
            yield from bound_types(member)


TYPES = sorted(set(bound_types(_core)), key=str)


def test_all_are_found() -> None:
    names = {each.__name__ for each in TYPES}
    assert names >= {"Endpoint", "Peer", "Memory", "RemoteMemory", "Transfer", "Grant", "QueuePair"}


@pytest.mark.parametrize("bound", TYPES, ids=str)
def test_each_use_is_refused(bound: type) -> None:
    half = bound.__new__(bound)
    refused = partial(pytest.raises, (TypeError, RuntimeError), match=f"{NEVER_MADE}|{NOT_HELD}")
    for name, member in vars(bound).items():
        if isinstance(member, property):
            with refused():
                getattr(half, name)
    if "__repr__" in vars(bound):
        with refused():
            repr(half)
    if bound in (_core.Memory, _core.ArrayView):  # they share their bytes
        with pytest.raises(BufferError, match=NEVER_MADE):
            memoryview(half)
    for name in ("close", "wait", "remote", "revoke"):
        if callable(vars(bound).get(name)):
            with refused():
                getattr(half, name)()


def test_what_a_traceback_shows_of_an_endpoint_that_could_not_be_made() -> None:
    with pytest.raises(zh.VerbsError, match="soft7") as caught:
        zh.Endpoint("soft7")
    frames = [entry.frame for entry in caught.traceback]
    [half] = [
        each.f_locals["self"]
        for each in frames
        if isinstance(each.f_locals.get("self"), zh.Endpoint)
    ]
    with pytest.raises(TypeError, match=NEVER_MADE):
        half.stats()
    assert repr(half) == "<zerohop.Endpoint, never made>"
    shown = "".join(
        traceback.TracebackException.from_exception(caught.value, capture_locals=True).format()
    )
    assert "<zerohop.Endpoint, never made>" in shown
    assert "soft7" in shown
