"""Fixtures of the contract suite: every case runs over peers x devices x memory kinds."""

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.arrays import GPUS, Kind, missing_reason, on_gpu, warm_up
from support.arrays import KINDS as ALL_KINDS
from support.host_only import is_host_only
from support.members import member
from support.partner import Partners
from support.patience import patient
from support.ranks import Job, close, worlds
from support.session import Remote
from support.spawned import Worker
from support.torch_ranks import torch_ranks

# The one list of devices. "p2p": soft0, and what lies on this host is copied without it. Added from
# outside: rxe0; "rxe0+rxe1": both at once; "staged": soft0, but the Endpoints copy memory of GPUs.
DEVICES = [
    names.replace("+", ",")
    for names in os.environ.get("ZEROHOP_TEST_DEVICES", "soft0,p2p").split(",")
]
KINDS = os.environ.get("ZEROHOP_TEST_KINDS", ",".join(ALL_KINDS)).split(",")
# "thread", "process", and "far": on the host of $ZEROHOP_TEST_FAR, where support.far serves.
PARTNERS = os.environ.get("ZEROHOP_TEST_PARTNERS", "thread,process").split(",")
PROCESS = "far" if PARTNERS == ["far"] else "process"
TEST_TIMEOUT = 60  # seconds, for a test that names none


# Over p2p only what moves bytes runs once more, and with memory of its two sorts: mapped, and not. (Calls of PyTorch: in
# test_programs.py.)
FILES_WITHOUT_P2P = {
    "test_addresses.py", "test_attacks.py", "test_collectives_differ.py", "test_collectives_mistakes.py",
    "test_collectives_untaken.py", "test_connecting.py", "test_errors.py", "test_hostile_bytes.py",
    "test_integrity_collectives.py", "test_load.py", "test_max_peers.py", "test_message_window.py",
    "test_messages.py", "test_mistakes.py", "test_segment_mistakes.py", "test_shapes.py", "test_sharing.py",
    "test_timeouts.py", "test_torch_backend.py", "test_torch_backend_forms.py", "test_torch_backend_groups.py",
    "test_torch_backend_mistakes.py", "test_torch_backend_sparse.py", "test_values.py",
    "test_verbs_operations.py", "test_world_launchers.py", "test_world_leaving.py", "test_world_runs.py",
    "test_world_shrinking.py",
}  # fmt: skip
KINDS_OVER_P2P = {"numpy", "empty"}


def is_left_out(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)
    if parameters is None or parameters.params.get("device") != "p2p":
        return False
    kind = parameters.params.get("kind", "numpy")
    return item.path.name in FILES_WITHOUT_P2P or kind not in KINDS_OVER_P2P


def has_far(item: pytest.Item) -> bool:
    """Whether the case has a partner that may be on another host; the others say nothing of two."""
    return not {"remote", "process"}.isdisjoint(getattr(item, "fixturenames", ()))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "p2p" in DEVICES and "ZEROHOP_TEST_DEVICES" not in os.environ:  # else they were asked for
        left_out = [item for item in items if is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    here = Path(__file__).resolve().parent
    if GPUS:
        left_out = [item for item in items if here in item.path.parents and is_host_only(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    if PARTNERS == ["far"]:
        left_out = [item for item in items if here in item.path.parents and not has_far(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    for item in items:
        if here in item.path.parents:
            own = item.get_closest_marker("timeout")
            seconds = own.args[0] if own else TEST_TIMEOUT
            item.add_marker(pytest.mark.timeout(patient(seconds)), append=False)


@pytest.fixture(scope="session")
def partners() -> Iterator[Partners]:
    made = Partners()
    yield made
    made.close()


@pytest.fixture(scope="session", autouse=True)
def gpus() -> None:
    """The GPUs of $ZEROHOP_TEST_GPUS, if there are any, are ready."""
    warm_up(GPUS)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name to open; variables say the rest (for partners too: support.case)."""
    variant = request.param
    monkeypatch.setenv("ZEROHOP_P2P", str(int(variant == "p2p")))
    monkeypatch.setenv("ZEROHOP_REGISTRATION", "staged" if variant == "staged" else "auto")
    return "soft0" if variant in ("p2p", "staged") else variant


@pytest.fixture
def p2p(device: str) -> bool:
    """Whether processes of this host copy without the device."""
    return os.environ["ZEROHOP_P2P"] == "1"


@pytest.fixture
def by_device() -> str:
    """The route over the device that memory of `kind`s has."""
    if not on_gpu():
        return "host"
    return "staged" if {"soft0", "p2p", "staged"}.intersection(DEVICES) else "gpudirect"


@pytest.fixture(params=PARTNERS)
def remote(request: pytest.FixtureRequest, partners: Partners, device: str) -> Remote:
    """The partner is a thread of this process, then a process; or on another host."""
    return Remote(partners, request.param, device)


@pytest.fixture
def process(partners: Partners, device: str) -> Remote:
    """The partner is always a process: for cases in which it is killed, stopped or alone."""
    return Remote(partners, PROCESS, device)


@pytest.fixture
def thread(partners: Partners, device: str) -> Remote:
    """The partner is always a thread: for cases about this process only."""
    return Remote(partners, "thread", device)


@pytest.fixture(params=["thread", "process"])
def job(request: pytest.FixtureRequest, device: str, tmp_path: Path) -> Job:
    """Ranks of a World: threads of this process, then processes."""
    return Job(request.param, tmp_path / "job", device)


@pytest.fixture
def rank_threads(device: str, tmp_path: Path) -> Job:
    """For cases that say no more of processes, and those in which ranks see each other's objects."""
    return Job("thread", tmp_path / "job", device)


@pytest.fixture
def rank_processes(device: str, tmp_path: Path) -> Job:
    return Job("process", tmp_path / "job", device)


@pytest.fixture
def pair(rank_threads: Job) -> Iterator[list[object]]:
    """The two ranks of a World."""
    made = worlds(rank_threads, range(2), 2)
    yield made
    close(made)


@pytest.fixture
def victim(rank_threads: Job) -> Iterator[Callable[[int], Worker]]:
    """Makes the last rank of a World of so many, in a process to be killed (support.members: come_once)."""
    with ExitStack() as made:

        def make(size: int) -> Worker:
            last = member(rank_threads, size - 1, size)
            made.callback(last.discard)
            last.tell("come_once")
            return last

        yield make


@pytest.fixture
def torch_job(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[object]]:
    """Runs a function on every rank of torch.distributed: torch_job(function, size, *args, backend=)."""
    monkeypatch.setenv("ZEROHOP_DEVICE", device)

    def run(*arguments: object, **options: object) -> list[object]:
        with torch_ranks(tmp_path / "store", *arguments, **options) as ranks:
            return ranks.results()

    return run


@pytest.fixture(params=["thread", "process"])
def near(
    request: pytest.FixtureRequest, partners: Partners, monkeypatch: pytest.MonkeyPatch
) -> Remote:
    """A partner on this host, a thread, then a process: for cases about p2p alone."""
    monkeypatch.setenv("ZEROHOP_P2P", "1")
    return Remote(partners, request.param, "soft0")


@pytest.fixture
def near_process(partners: Partners, monkeypatch: pytest.MonkeyPatch) -> Remote:
    monkeypatch.setenv("ZEROHOP_P2P", "1")
    return Remote(partners, "process", "soft0")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Where the bytes are: one of KINDS; only a library that is not installed skips."""
    reason = missing_reason(request.param)
    if reason:
        pytest.skip(reason)
    if request.param == "torch":
        importlib.import_module("torch")  # seconds, the first time: not in a deadline of the test
    return request.param


@pytest.fixture
def open_endpoint(device: str) -> Iterator[Callable[..., object]]:
    """Makes endpoints on the device under test and closes them at the end."""
    import zerohop as zh

    made: list[zh.Endpoint] = []

    def make(**options: object) -> zh.Endpoint:
        made.append(zh.Endpoint(device, **{"timeout": patient(10.0), **options}))
        return made[-1]

    yield make
    for endpoint in made:
        endpoint.close()


@pytest.fixture
def couple(open_endpoint) -> tuple[object, object, object, object]:
    """Two Endpoints that wait long, and each one's Peer for the other."""
    a, b = open_endpoint(timeout=patient(30.0)), open_endpoint(timeout=patient(30.0))
    to_b = a.connect(b.address)
    return a, b, to_b, b.accept()
