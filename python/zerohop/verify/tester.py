"""Random patterns at random places, compared byte for byte, and by the checksums of both ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from zerohop.errors import Error, IntegrityError, PeerLost
from zerohop.verify.patterns import PATTERNS, Bytes
from zerohop.verify.ways import PAGE, Way

MOST_WRONG = 100  # reported one by one, per route


@dataclass(frozen=True)
class Wrong:
    """The place of an error: bytes of that route's memory at the other end."""

    route: str
    found_by: str  # "bytes", "checksum", "error"
    pattern: str
    offset: int
    nbytes: int
    what: str


@dataclass
class Tally:
    """Totals of one route."""

    route: str
    operations: int = 0  # one pattern there and back
    nbytes: int = 0  # moved, both ways
    errors: int = 0
    wrong: list[Wrong] = field(default_factory=list)  # the first MOST_WRONG of them

    def add(self, wrong: Wrong) -> None:
        self.errors += 1
        if len(self.wrong) < MOST_WRONG:
            self.wrong.append(wrong)


class Tester:
    """Keeps the expected content of the far memory of one route."""

    def __init__(self, way: Way, seed: int) -> None:
        self.tally = Tally(way.route)
        self._way = way
        self._random = np.random.default_rng(seed)
        self._model = np.zeros(way.nbytes, np.uint8)
        with self._noting("first zeros", 0, way.nbytes):
            way.put(self._model, 0, 0)

    def rounds(self) -> Iterator[str]:
        """Endless. Each step is one operation with one pattern and yields its name. Raises PeerLost."""
        while True:
            for name in PATTERNS:
                self._step(name)
                yield name

    def finish(self) -> None:
        """Checks all of the memory, because bytes outside the ranges must not have changed either."""
        with self._noting("whole memory", 0, self._model.size):
            self._compare("whole memory", 0, self._way.get(0, self._model.size, 0))

    def _step(self, name: str) -> None:
        offset, nbytes, shift = self._place()
        part = self._model[offset : offset + nbytes]
        content = PATTERNS[name](self._random, part, offset)
        with self._noting(name, offset, nbytes):
            self._way.put(content, offset, shift)
        part[:] = content
        with self._noting(name, offset, nbytes):
            self._compare(name, offset, self._way.get(offset, nbytes, PAGE - 1 - shift))
        self.tally.operations += 1
        self.tally.nbytes += 2 * nbytes

    def _place(self) -> tuple[int, int, int]:
        """Offset there, length and offset in a page here: as many short ranges as long ones."""
        size = self._model.size
        nbytes = min(size, int(2 ** self._random.uniform(0, np.log2(size))))
        offset = int(self._random.integers(size - nbytes + 1))
        return offset, nbytes, int(self._random.integers(PAGE))

    def _compare(self, name: str, offset: int, found: Bytes) -> None:
        wanted = self._model[offset : offset + found.size]
        places = np.flatnonzero(wanted != found)
        if not places.size:
            return
        first, last = int(places[0]), int(places[-1])
        bits = np.bitwise_or.reduce(wanted[places] ^ found[places])
        what = (
            f"{places.size} bytes differ, the first is {found[first]:#04x} instead of "
            f"{wanted[first]:#04x}; bits that differ: {bits:#04x}"
        )
        self._add("bytes", name, offset + first, last - first + 1, what)
        self._mend(offset, wanted)

    def _mend(self, offset: int, wanted: Bytes) -> None:
        """Restores the range, so that one error is reported once."""
        with self._noting("mending", offset, wanted.size):
            self._way.put(wanted, offset, 0)

    @contextmanager
    def _noting(self, name: str, offset: int, nbytes: int) -> Iterator[None]:
        """Records an error of a transfer as an error of its range, except the loss of the peer."""
        try:
            yield
        except PeerLost:
            raise
        except IntegrityError as error:
            self._add("checksum", name, offset + error.offset, error.nbytes, str(error))
        except Error as error:
            self._add("error", name, offset, nbytes, str(error))

    def _add(self, by: str, name: str, offset: int, nbytes: int, what: str) -> None:
        self.tally.add(Wrong(self.tally.route, by, name, offset, nbytes, what))
