"""The ranks of a World in a store, one key each: their addresses, and whether they are still there."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from zerohop._world.deadline import looks
from zerohop._world.entries import Entry
from zerohop._world.runs import Lead, check_size, open_run
from zerohop._world.store import ANSWER, Answers, Store, is_of_torch, peek
from zerohop.errors import Error, TransferTimeout


class Addresses:
    """name: name of the World; rank, size: this process's; place, table: of its Entry."""

    def __init__(
        self, store: Store, name: str, rank: int, size: int, place: str = "", table: str = ""
    ) -> None:
        self._store, self._prefix = store, f"zerohop/{name}"
        self._what = f"World {name!r} in {store!r}"
        self._rank, self._own = rank, Entry(b"", size, place=place, table=table)
        self._run = open_run(store, self._prefix)
        self._answers = Answers(store)
        self._over = False  # this rank has left

    def publish(self, address: bytes, timeout: float) -> None:
        """Joins a run, as World describes. Raises Error, ValueError."""
        self._own = replace(self._own, address=address)
        self._run.join(self._rank, self._own, timeout)

    def wait(self, rank: int, end: float) -> tuple[Entry, Lead]:
        """The entry of that rank, now or by `end` (time.monotonic()). Raises TransferTimeout; Error once this rank has left."""
        key = f"{self._prefix}/{rank}"
        if is_of_torch(self._store):  # its get() waits for its own timeout
            self._wait_in_torch(key, end)
        earlier: Entry | None = None
        for _ in looks(end):
            if self._over:
                raise Error("this rank has left")
            if (value := self._now(key)) is None:
                continue
            entry = Entry.from_bytes(value)
            lead = self._run.look_into(rank, entry)
            if lead.seconds or lead.lost:  # else it does not belong to this run
                return entry, lead
            earlier = entry
        raise self._missing(key, earlier)

    @property
    def run(self) -> str | None:
        """The name of this rank's run in the store; "": the store serves one run. None: runs cannot be told apart."""
        return self._run.number

    def found(self, rank: int, entry: Entry) -> None:
        """Records that the rank was at its address. Raises ValueError: it has another size."""
        check_size(self._what, self._rank, self._own, rank, entry)
        self._run.found(rank, entry)

    def say(self, why: str) -> None:
        """Records why this rank leaves, for ranks that have yet to look for it. Never raises."""
        with suppress(Exception):  # the store may be another process, which has ended
            own = replace(self._own, left=why)
            self._answers.of(lambda: self._run.amend(self._rank, own))

    def leave(self) -> None:
        self._over = True
        self._run.leave()

    def _wait_in_torch(self, key: str, end: float) -> None:
        left = max(1e-3, end - time.monotonic())  # 0 would mean no bound
        store: Any = self._store
        try:
            self._answers.of(lambda: store.wait([key], timedelta(seconds=left)), left + ANSWER)
        except TimeoutError as error:
            raise self._silent(key, error) from error
        except RuntimeError as error:
            if time.monotonic() < end - 0.5:
                raise self._silent(key, error) from error
            raise self._missing(key) from error

    def _now(self, key: str) -> bytes | None:
        try:
            return self._answers.of(lambda: peek(self._store, key))
        except TimeoutError as error:
            raise self._silent(key, error) from error

    def _silent(self, key: str, error: Exception) -> Error:
        return Error(
            f"{self._store!r} gives no answer about {key!r}: {error}; see whether the store can still be reached: if a process "
            "serves it, as a rule rank 0 or the launcher, whether that has ended"
        )

    def _missing(self, key: str, earlier: Entry | None = None) -> TransferTimeout:
        """earlier: of that rank in an earlier run."""
        why = "that rank has not made its World with the same store and name"
        if earlier is not None:
            why += f"; its last one, of {earlier.who}, had ended before this rank made its own"
        return TransferTimeout(f"{self._store!r} has no {key!r} of this run yet: {why}")
