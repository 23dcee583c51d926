"""A call whose arguments do not fit, or whose object was never made: a sentence says so."""

import inspect
import re
import traceback
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import zerohop as zh
from zerohop import _core
from zerohop.calls import explain, parse
from zerohop.collectives import CollectiveCalls, ReductionCalls

CASES: dict[str, Callable[[Any], object]] = {
    "write(): got an unexpected keyword argument 'notfy'; it is write(source, destination, *, "
    "notify=None, stream=None, require=None, timeout=None)":
        lambda s: s.peer.write(s.array, s.far, notfy=(1, 2)),
    "write(): missing a required argument: 'destination'": lambda s: s.peer.write(s.array),
    "write(): too many positional arguments": lambda s: s.peer.write(s.array, s.far, (7, 1)),
    "write(): multiple values for argument 'source'":
        lambda s: s.peer.write(s.array, s.far, source=s.array),
    "notify(): missing a required argument: 'value'; it is notify(slot, value, *, stream=None, timeout=None)":
        lambda s: s.peer.notify((7, 1)),
    "wait(): got an unexpected keyword argument 'time'":
        lambda s: s.peer.write(s.array, s.far).wait(time=1),
    "register(): cache must be bool, not str and registration must be str | None, not int":
        lambda s: s.ep.register(s.array, cache="no", registration=3),
    "wait_notify(): reset must be bool, not str": lambda s: s.ep.wait_notify(7, 0, reset="no"),
    "Endpoint.close() got an unexpected keyword argument 'when'": lambda s: s.ep.close(when=1),
    "Device(): name must be str, not int": lambda s: zh.verbs.Device(3),
}  # fmt: skip


class Scene:
    """Two connected Endpoints and something to write."""

    def __init__(self, ep: zh.Endpoint, other: zh.Endpoint) -> None:
        self.ep = ep
        self.other = other
        self.peer = ep.connect(other.address)
        self.array = np.arange(5000.0)
        self.memory = other.empty(5000, float)
        self.far = self.memory.remote


@pytest.fixture(scope="module")
def scene():
    with zh.Endpoint("soft0") as ep, zh.Endpoint("soft0") as other:
        yield Scene(ep, other)


@pytest.mark.parametrize("sentence", CASES)
def test_the_argument_is_named_and_none_is_shown(scene, sentence):
    with pytest.raises(TypeError) as caught:
        CASES[sentence](scene)
    said = str(caught.value)
    assert said.startswith(sentence)
    assert "\n" not in said
    assert "Invoked" not in said


def test_a_transfer_takes_its_arguments_in_whatever_way_they_are_given(scene):
    fresh = b"notify".decode()  # no interned str, as those in a program's text are
    ours, far, peer = scene.array, scene.far, scene.peer
    calls: list[Callable[[tuple[int, int]], zh.Transfer]] = [
        lambda n: peer.write(ours, far, notify=n),
        lambda n: peer.write(ours, far, stream=None, timeout=5, require=None, notify=n),
        lambda n: peer.write(ours, destination=far, notify=n),
        lambda n: peer.write(destination=far, source=ours, notify=n),
        lambda n: peer.write(ours, far, **{fresh: n}),
        lambda n: peer.read(far, ours, notify=n),
        lambda n: peer.read(source=far, destination=ours, notify=n),
        lambda n: _core.Peer.write(peer, ours, far, notify=n),
    ]
    for value, call in enumerate(calls, start=1):
        assert call((9, value)).wait() is None
        assert scene.other.wait_notify(9) == value
    np.testing.assert_array_equal(np.asarray(scene.memory), ours)


def test_a_wait_takes_its_timeout_in_whatever_way_it_is_given(scene):
    ep, other, peer = scene.ep, scene.other, scene.peer
    fresh = b"timeout".decode()
    done = peer.write(scene.array, scene.far)
    for wait in (
        lambda: done.wait(),
        lambda: done.wait(None),
        lambda: done.wait(5),
        lambda: done.wait(timeout=5),
        lambda: done.wait(**{fresh: 5}),
        lambda: zh.Transfer.wait(done),
    ):
        assert wait() is None
    counter = other.empty(1, "uint64")
    assert peer.fetch_add(counter.remote, 3).wait(5) == 0
    waits: list[Callable[[], int]] = [
        lambda: other.wait_notify(9),
        lambda: other.wait_notify(9, None),
        lambda: other.wait_notify(9, 5),
        lambda: other.wait_notify(9, timeout=5),
        lambda: other.wait_notify(slot=9, timeout=5),
        lambda: other.wait_notify(9, 5, True),
        lambda: _core.Endpoint.wait_notify(other, np.int64(9), np.float32(5)),
    ]
    for value, notified in enumerate(waits, start=1):
        notes = [lambda v: peer.notify(9, v), lambda v: peer.notify(slot=9, value=v)]
        assert notes[value % 2](value).wait() is None
        assert notified() == value
    for wrong in (True, "5", -1):
        for call in (done.wait, lambda timeout: ep.wait_notify(3, timeout)):
            with pytest.raises(
                (TypeError, ValueError), match=r"^timeout must be a number of seconds"
            ):
                (call if call != done.wait else peer.recv(np.zeros(1)).wait)(wrong)


def test_what_was_never_made_is_refused_by_fast_methods_too(scene):
    half = zh.Transfer.__new__(zh.Transfer)
    with pytest.raises(TypeError, match="never made"):
        half.wait()
    with pytest.raises(TypeError):
        zh.Peer.write(half, scene.array, scene.far)


def test_a_list_that_changes_while_it_is_read(scene):
    class Evil:
        def __index__(self) -> int:
            notify.clear()
            return 9

    notify: list[Any] = []
    notify += [Evil(), 10**6]
    scene.peer.write(scene.array, scene.far, notify=notify).wait()
    assert scene.other.wait_notify(9) == 10**6


def test_what_is_passed_is_never_read_as_a_signature():
    shown = "\n    2. (a: int) -> None\n\nInvoked with: \n    3. (b: int) -> None"
    refusal = (
        "f(): incompatible function arguments. ...:\n    1. (x: str) -> None\n\nInvoked with: "
    )
    assert explain(refusal + shown, (1,), {}) == "f(): x must be str, not int"
    several = "f(): incompatible function arguments. ...:\n    1. (x: str) -> None" + shown
    assert explain(several, (1,), {}) == "f(): a value does not fit"  # of the second
    assert explain(several, (None,), {}) == "f(): x must be str, not NoneType"


def functions() -> Iterator[tuple[str, str]]:
    for scope in [_core, *(kind for _, kind in inspect.getmembers(_core, inspect.isclass))]:
        for name, member in vars(scope).items():
            signature = re.match(rf"{name}(\(.*\)) -> ", getattr(member, "__doc__", None) or "")
            if signature:
                yield f"{scope.__name__}.{name}", signature[1]


def test_every_signature_of_the_core_can_be_explained():
    signatures = dict(functions())
    assert {"Peer.write", "Endpoint.register", "QueuePair.__init__"} <= set(signatures)
    for name, signature in signatures.items():
        assert parse(signature), name


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


def test_all_are_found():
    names = {each.__name__ for each in TYPES}
    assert names >= {"Endpoint", "Peer", "Memory", "RemoteMemory", "Transfer", "Grant", "QueuePair"}


@pytest.mark.parametrize("bound", TYPES, ids=str)
def test_each_use_is_refused(bound):
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


def test_what_a_traceback_shows_of_an_endpoint_that_could_not_be_made():
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


def test_the_help_of_each_collective_says_what_every_argument_is():
    methods = [
        each
        for calls in (CollectiveCalls, ReductionCalls)
        for name, each in vars(calls).items()
        if inspect.isfunction(each) and not name.startswith("_")
    ]
    assert len(methods) == 10
    for method in methods:
        text = inspect.getdoc(method) or ""
        for name in list(inspect.signature(method).parameters)[1:]:
            assert re.search(rf"^(\w+, )?{name}(, \w+)?: ", text, re.MULTILINE), (method, name)
        assert "Returns a Collective" in text
        assert all(error in text for error in ("TypeError", "ValueError", "PeerLost"))
