"""The trainer: it pushes each version to all readers, and drops those that are lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from zerohop.bound import looks
from zerohop.errors import PeerLost, TransferTimeout
from zerohop.examples.failures import OutOfStep, Stopped
from zerohop.examples.weights.model import Model
from zerohop.examples.weights.plan import ACKNOWLEDGED, COPIES, Plan, copy_name
from zerohop.examples.weights.reader import TOLD

if TYPE_CHECKING:
    from zerohop._core import Memory, Peer, RemoteMemory
    from zerohop.world import World

__all__ = ["Trainer"]

_LOOK_S = 0.25  # seconds of a wait, after which it is looked whether readers are lost
_LONGEST = 1000  # bytes of what a reader says is wrong


class Trainer:
    """lost: by the rank of a reader, when and why. Rank 0."""

    def __init__(self, world: World, plan: Plan, model: Model) -> None:
        self._world, self._plan, self._model = world, plan, model
        self._sources = [world.endpoint.register(each) for each in model.parameters]
        self.lost: dict[int, str] = {}
        self.readers: dict[int, Reading] = {}
        for rank in range(1, world.size):
            self.readers[rank] = Reading(world.peer(rank), rank, plan, self._sources)
        self.seconds: list[float] = []  # of each version, until it is at all readers

    @property
    def route(self) -> str:
        reader = next(iter(self.readers.values()))
        return str(reader.peer.route(self._sources[0], reader.parts[0][0]))

    def push_all(self, done: Callable[[int], None]) -> None:
        """Trains and pushes every version. Raises Stopped (no reader is left), OutOfStep, TransferTimeout."""
        for version in range(1, self._plan.versions + 1):
            self._model.step(self._plan.gradients(version))
            # Who uses that version has left the copy that this one goes to.
            self._await_readers(version - COPIES + 1)
            begin = time.perf_counter()
            self._push(version)
            self.seconds.append(time.perf_counter() - begin)
            done(version)
        self._await_readers(self._plan.versions)

    def _push(self, version: int) -> None:
        """Returns when it is in the copies of all: the next step changes the parameters."""
        under_way: list[tuple[Reading, Any]] = []
        for reader in self._alive():
            with self._dropping(reader, f"at version {version}"):
                under_way.append((reader, reader.write(version)))
        for reader, written in under_way:
            with self._dropping(reader, f"at version {version}"):
                written.wait()

    def _await_readers(self, version: int) -> None:
        """Until all that are alive use that version or a later one."""
        endpoint = self._world.endpoint
        end = time.monotonic() + endpoint.timeout
        while late := [reader for reader in self._alive() if reader.uses < version]:
            if time.monotonic() > end:
                names = ", ".join(str(reader.rank) for reader in late)
                raise TransferTimeout(
                    f"rank {names} did not go over to version {version} in {endpoint.timeout:g} s"
                )
            self._hear(late, version)

    def _hear(self, late: list[Reading], version: int) -> None:
        """Waits for a word of any reader, but not for long: one that is lost says none."""
        try:
            slot, value = self._world.endpoint.wait_notify_any(
                ACKNOWLEDGED, self._world.size, timeout=_LOOK_S
            )
        except (TransferTimeout, PeerLost):  # PeerLost: it was the last one
            for reader in late:
                with self._dropping(reader, f"at version {version}"):
                    if not reader.peer.alive:
                        reader.peer.notify(0, 1).wait()  # raises: it says why
            return
        self._heard(slot - ACKNOWLEDGED, value)

    def _heard(self, rank: int, version: int) -> None:
        reader = self.readers[rank]
        if version != reader.uses + 1:
            raise OutOfStep(f"rank {rank} says that it uses version {version} after {reader.uses}")
        reader.uses = version

    def _alive(self) -> list[Reading]:
        """Raises Stopped where none is left."""
        alive = [reader for rank, reader in self.readers.items() if rank not in self.lost]
        if not alive:
            said = "; ".join(f"rank {rank}, {why}" for rank, why in self.lost.items())
            raise Stopped(f"all readers are lost: {said}")
        return alive

    @contextmanager
    def _dropping(self, reader: Reading, when: str) -> Iterator[None]:
        """Notes one that is lost as such."""
        try:
            yield
        except PeerLost as error:
            self.lost.setdefault(reader.rank, f"{when} ({error})")

    def hear_out(self) -> list[str]:
        """What readers have found wrong; of one that dies meanwhile nothing."""
        said = []
        for reader in self._alive():
            with self._dropping(reader, "at the end"):
                text = np.empty(_LONGEST, np.uint8)
                nbytes = reader.peer.recv(text, tag=TOLD).wait()
                said.append(text[:nbytes].tobytes().decode().strip())
        return [wrong for wrong in said if wrong]

    def leave(self) -> None:
        """Behind all readers: one that is lost comes to no barrier."""
        for _ in looks(time.monotonic() + self._world.endpoint.timeout):
            if not any(reader.peer.alive for reader in self.readers.values()):
                break

    def close(self) -> None:
        for source in self._sources:
            source.close()


class Reading:
    """A reader as the trainer sees it. parts: the parameters in each of its copies. uses: version."""

    def __init__(self, peer: Peer, rank: int, plan: Plan, sources: list[Memory]) -> None:
        self.peer, self.rank, self.uses = peer, rank, 0
        self._sources = sources
        self.parts: list[list[RemoteMemory]] = []
        for number in range(COPIES):
            copy = peer.lookup(copy_name(number))
            self.parts.append([copy[place] for place in plan.places()])

    def write(self, version: int) -> Any:
        number = version % COPIES
        pairs = list(zip(self._sources, self.parts[number], strict=True))
        return self.peer.write_many(pairs, notify=(number, version))
