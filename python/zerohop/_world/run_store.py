"""The keys of one run, in a store that may serve other runs, too."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from zerohop._world.answers import Answers
from zerohop._world.store import Store, peek, set_once
from zerohop.errors import Error

__all__ = ["RunStore"]

_T = TypeVar("_T")


class RunStore:
    """run: its name; empty: the store serves one. Raises Error where the store fails."""

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._prefix = store, f"{run}/" if run else ""
        self._answers = Answers(store)

    def set(self, key: str, value: bytes) -> None:
        self._call(lambda: self._store.set(self._prefix + key, value))

    def set_once(self, key: str, value: bytes) -> bytes:
        """Unless it has been set. Returns what it holds from then on, for all."""
        return self._call(lambda: set_once(self._store, self._prefix + key, value))

    def get(self, key: str) -> bytes | None:
        """Now; None: nobody has set it yet."""
        return self._call(lambda: peek(self._store, self._prefix + key))

    def get_json(self, key: str) -> object:
        """None also for what is no JSON."""
        try:
            return json.loads(self.get(key) or b"null")
        except ValueError:
            return None

    def _call(self, call: Callable[[], _T]) -> _T:
        try:
            return self._answers.of(call)
        except Exception as error:
            raise Error(
                f"{self._store!r} does not serve ({type(error).__name__}: {error}): give shrink(store=) one that all who are left "
                "reach, fresh, for this run alone: a directory, say"
            ) from error
