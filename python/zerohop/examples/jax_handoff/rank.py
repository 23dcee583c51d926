"""What each rank does: rank 0 computes arrays and writes them; rank 1 makes arrays of what came, and compares them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zerohop.examples.failures import OutOfStep

if TYPE_CHECKING:
    from zerohop.examples.job import Report
    from zerohop.world import World

__all__ = ["DTYPES", "Finding", "Jax", "Outcome", "Spec", "expected", "work"]

DTYPES = ("float32", "bfloat16", "float16", "int8")
_SLOT, _TAG = 0, 0
_LONGEST = 1000  # bytes of what rank 1 says of a dtype


@dataclass(frozen=True)
class Spec:
    rows: int
    columns: int
    rounds: int  # of each dtype, each with values and memory of its own
    devices: tuple[str, ...]


@dataclass
class Outcome:
    """Of one dtype. seconds: of each write. in_place: JAX reads the memory itself, and not a copy of it."""

    dtype: str
    nbytes: int
    route: str = ""
    seconds: list[float] = field(default_factory=list)
    in_place: int = 0  # rounds
    wrong: str = ""  # the first, in words


@dataclass
class Finding:
    device: str
    outcomes: list[Outcome]


def work(world: World, spec: Spec, report: Report) -> Finding | None:
    """On rank 0 what was found; nothing elsewhere."""
    device = spec.devices[world.local_rank % len(spec.devices)]
    jax = Jax(device)
    outcomes = []
    for dtype in DTYPES:
        if world.rank == 0:
            outcomes.append(give(world, spec, jax, dtype, report))
        else:
            take(world, spec, jax, dtype)
    world.barrier()
    return Finding(device, outcomes) if world.rank == 0 else None


class Jax:
    """JAX on one device."""

    def __init__(self, device: str) -> None:
        # Two processes may share a GPU: each then takes what it needs, when it needs it.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self.jax: Any = import_module("jax")
        self.numpy: Any = import_module("jax.numpy")
        self._values = self.jax.jit(_values)
        kind, _, ordinal = device.partition(":")
        self._device = self.jax.devices(kind)[int(ordinal or 0)]

    def compute(self, spec: Spec, dtype: str, round_: int) -> Any:
        """An array that is there when it returns."""
        with self.jax.default_device(self._device):
            cells = self.numpy.arange(spec.rows * spec.columns).reshape(spec.rows, spec.columns)
            made = self._values(cells, round_).astype(dtype)
            return made.block_until_ready()  # transfers begin outside of what JAX has queued

    def array(self, memory: Any) -> Any:
        """That array of JAX. `memory` must be written no more."""
        return self.jax.dlpack.from_dlpack(memory)


def _values(cells: Any, round_: int) -> Any:
    """Whole numbers that each of DTYPES has."""
    return (cells % 251 * 37 + round_ * 11) % 251 - 125


def expected(spec: Spec, dtype: str, round_: int) -> npt.NDArray[Any]:
    """The reference, without JAX; ml_dtypes, which comes with it, has NumPy's bfloat16."""
    import_module("ml_dtypes")
    cells = np.arange(spec.rows * spec.columns).reshape(spec.rows, spec.columns)
    values: npt.NDArray[Any] = _values(cells, round_).astype(dtype)
    return values


def give(world: World, spec: Spec, jax: Jax, dtype: str, report: Report) -> Outcome:
    peer = world.peer(1)
    outcome = Outcome(dtype, 0)
    for round_ in range(spec.rounds):
        array = jax.compute(spec, dtype, round_)
        source = world.endpoint.register(array)
        there = peer.lookup(_name(dtype, round_))
        begin = time.perf_counter()
        peer.write(source, there, notify=(_SLOT, round_ + 1)).wait()
        outcome.seconds.append(time.perf_counter() - begin)
        outcome.nbytes, outcome.route = source.nbytes, str(peer.route(source, there))
        report(f"arrays of {dtype}", round_ + 1, spec.rounds)
    said = np.empty(_LONGEST, np.uint8)
    nbytes = peer.recv(said, tag=_TAG).wait()
    in_place, outcome.wrong = said[:nbytes].tobytes().decode().split("|", 1)
    outcome.in_place = int(in_place)
    return outcome


def take(world: World, spec: Spec, jax: Jax, dtype: str) -> None:
    endpoint, device = world.endpoint, spec.devices[world.local_rank % len(spec.devices)]
    peer, in_place, wrong = world.peer(0), 0, ""
    for round_ in range(spec.rounds):
        memory = endpoint.empty((spec.rows, spec.columns), dtype, device=device)
        endpoint.share(_name(dtype, round_), memory)
        value = endpoint.wait_notify(_SLOT)
        if value != round_ + 1:
            raise OutOfStep(f"got array {value} of {dtype} where {round_ + 1} is due")
        array = jax.array(memory)
        in_place += array.unsafe_buffer_pointer() == memory.address
        wrong = wrong or differing(np.asarray(array), expected(spec, dtype, round_), round_)
    peer.send(np.frombuffer(f"{in_place}|{wrong}".encode(), np.uint8), tag=_TAG).wait()


def differing(found: npt.NDArray[Any], right: npt.NDArray[Any], round_: int) -> str:
    """In words, the first element that is not the reference's, bit for bit; empty if there is none."""
    if (found.shape, found.dtype) != (right.shape, right.dtype):
        return f"array {round_ + 1} is {found.shape} {found.dtype}, not {right.shape} {right.dtype}"
    bits = f"u{found.dtype.itemsize}"
    where = np.argwhere(found.view(bits) != right.view(bits))
    if not len(where):
        return ""
    row, column = (int(number) for number in where[0])
    return (
        f"array {round_ + 1} of {found.dtype}: element {row}, {column} is {found[row, column]}, not {right[row, column]}; "
        f"of {found.size} elements {len(where)} are wrong"
    )


def _name(dtype: str, round_: int) -> str:
    return f"{dtype} array {round_}"
