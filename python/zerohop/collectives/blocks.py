"""The program's arrays as collectives move them: flat bytes, cut into blocks, on a host or a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerohop import _core
from zerohop._endpoint.numbers import whole
from zerohop._world.history import amount

if TYPE_CHECKING:
    from zerohop.endpoint import Endpoint


class Flat:
    """A contiguous array as flat bytes, registered at the first use until close().

    what: its name in messages. A GPU array is registered at once, after a wait for earlier work in the GPU's default
    stream. Raises TypeError (not an array), ValueError (gaps, read-only, Memory of another Endpoint),
    RegistrationError.
    """

    def __init__(
        self, endpoint: Endpoint, array: Any, what: str, *, writable: bool = False
    ) -> None:
        # Memory knows its address; access as a GPU array would first wait for the default stream.
        view = array if isinstance(array, _core.Memory) else view_of_any(array, what)
        if not view.contiguous:
            raise ValueError(
                f"{what} must be contiguous: pass a contiguous copy (numpy.ascontiguousarray, tensor.contiguous()), and if "
                "the call writes to it, copy the result back"
            )
        if writable and not view.writable:
            raise ValueError(f"{what} is written, but read-only: give a writable array")
        self.what, self.array, self._view, self._endpoint = what, array, view, endpoint
        self.address, self.nbytes, self.device = view.address, view.nbytes, view.device
        self.dtype, self.shape = view.dtype, tuple(view.shape)
        self._memory: _core.Memory | None = None
        # `remote` of closed Memory raises.
        if isinstance(array, _core.Memory) and array.remote.endpoint_id != endpoint.id:
            raise ValueError(f"{what} is Memory of another Endpoint than the World's")
        if self.device != "cpu" and self.nbytes:
            self.memory.__dlpack__()  # waits for the default stream

    @property
    def memory(self) -> _core.Memory:
        """The registered memory, with one axis."""
        if self._memory is None:
            given = isinstance(self.array, _core.Memory)
            # Without the cache: the other ranks' right to it ends with the call.
            memory = self.array if given else self._endpoint.register(self.array, cache=False)
            self._memory = memory.reshape(-1)
        return self._memory

    def whole(self) -> Block:
        return Block(self, 0, self.nbytes)

    def close(self) -> None:
        """Ends the access of other ranks, unless the program has registered it itself."""
        memory, self._memory = self._memory, None
        if memory is not None and not isinstance(self.array, _core.Memory):
            memory.close()


def view_of_any(array: Any, what: str) -> _core.ArrayView:
    try:
        return _core.ArrayView(array)
    except (TypeError, BufferError) as error:
        kind = TypeError if isinstance(error, TypeError) else BufferError
        raise kind(f"{what}: {error}") from None


@dataclass(frozen=True)
class Block:
    """`nbytes` of a Flat from byte `begin`: whole elements."""

    flat: Flat
    begin: int
    nbytes: int

    @property
    def on_host(self) -> bool:
        return self.flat.device == "cpu"

    @property
    def address(self) -> int:
        return self.flat.address + self.begin

    @property
    def memory(self) -> _core.Memory:
        return self.flat.memory.view("uint8")[self.range]

    @property
    def size(self) -> str:
        """For messages."""
        return amount(self.nbytes, self.flat.dtype)

    @property
    def range(self) -> slice:
        """In the bytes of its array."""
        return slice(self.begin, self.begin + self.nbytes)

    def is_at(self, other: Block) -> bool:
        """Whether the two have the same address."""
        return _place(self) == _place(other)


def cut_evenly(flat: Flat, size: int) -> list[Block]:
    """A block for each rank, along the first axis. Raises ValueError."""
    rows = flat.shape[0] if flat.shape else 0
    if not flat.shape or rows % size:
        raise ValueError(
            f"{flat.what} of shape {flat.shape} cannot be split into {size} equal blocks along its first axis: make its length "
            f"a multiple of {size}, or give a list of arrays, or counts= to the calls that take it"
        )
    return _cut(flat, [rows // size] * size)


def cut(flat: Flat, counts: Iterable[int], size: int) -> list[Block]:
    """A block of so many rows along the first axis for each rank. Raises ValueError, TypeError."""
    what = flat.what
    if isinstance(counts, str) or not isinstance(counts, Iterable):
        raise TypeError(
            f"the counts of {what} must be a list of {size} numbers of rows, one for each rank, not {counts!r}"
        )
    numbers = [whole(f"each of the counts of {what}", count) for count in counts]
    rows = flat.shape[0] if flat.shape else -1
    if len(numbers) != size or min(numbers) < 0 or sum(numbers) != rows:
        raise ValueError(
            f"the counts of {what} must be {size} numbers of rows, with the sum {rows}, not {numbers}"
        )
    return _cut(flat, numbers)


def _cut(flat: Flat, counts: Sequence[int]) -> list[Block]:
    rows = sum(counts)
    row = flat.nbytes // rows if rows else 0
    blocks, begin = [], 0
    for count in counts:
        blocks.append(Block(flat, begin, count * row))
        begin += count * row
    return blocks


def check_apart(outputs: Iterable[Block], inputs: Iterable[Block]) -> None:
    """Raises ValueError for memory that is both written and read, or written twice."""
    ends: dict[str, tuple[int, int]] = {}  # by device: end of the memory written so far, and of all
    places = [(_place(block), True, block) for block in outputs if block.nbytes]
    places += [(_place(block), False, block) for block in inputs if block.nbytes]
    for (device, begin, nbytes), written, block in sorted(places, key=lambda place: place[0]):
        writes_end, all_end = ends.get(device, (0, 0))
        if begin < (all_end if written else writes_end):
            raise ValueError(
                f"{block.flat.what} overlaps with memory that the call reads or writes: only a rank's own block may lie "
                "exactly at its destination"
            )
        end = begin + nbytes
        ends[device] = (max(writes_end, end) if written else writes_end, max(all_end, end))


def check_own(one: Block, other: Block) -> None:
    if one.nbytes != other.nbytes:
        raise ValueError(
            f"{one.flat.what} has {one.size}, this rank's part of {other.flat.what} {other.size}"
        )


def check_dtypes(flats: list[Flat]) -> None:
    for flat in flats:
        if flat.dtype != flats[0].dtype:
            raise ValueError(
                f"{flats[0].what} is of {flats[0].dtype}, {flat.what} of {flat.dtype}: a collective has one dtype, on all ranks"
            )


def moved(blocks: list[Block], own: int, place: Block) -> list[Block]:
    """Without this rank's own block if that lies at its destination."""
    if blocks[own].is_at(place):
        return blocks[:own] + blocks[own + 1 :]
    return blocks


def _place(block: Block) -> tuple[str, int, int]:
    return (block.flat.device, block.address, block.nbytes)
