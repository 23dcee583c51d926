"""Where the ranks of a World find each other's addresses: a directory, or any store of keys and bytes."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from zerohop.errors import Error, PeerLost, TransferTimeout

__all__ = ["Addresses", "Directory", "Store", "open_store"]

_FIRST_PAUSE = 1e-3  # seconds between two looks; it doubles
_LONGEST_PAUSE = 50e-3
_LEFT = b""  # in the place of an address


class Store(Protocol):
    """What PyTorch's TCPStore, FileStore and HashStore are, and whatever else has these two methods.

    ``get`` of a key that nobody has set yet waits, returns None or raises KeyError. It hands addresses out,
    which are secrets: nobody else may read it.
    """

    def set(self, key: str, value: Any, /) -> Any: ...  # bytes; PyTorch's type hints say str
    def get(self, key: str, /) -> Any: ...


class Directory:
    """A Store in files of a directory that all ranks see, each whole at any time and for this user alone."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def set(self, key: str, value: bytes) -> None:
        target = self._file(key)
        draft = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
        with suppress(FileNotFoundError):
            draft.unlink()
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(value)
        draft.replace(target)  # at once: nobody reads a part of it

    def get(self, key: str) -> bytes:
        """Raises KeyError, and PermissionError for a file that another user has put there."""
        path = self._file(key)
        try:
            file = path.open("rb")
        except FileNotFoundError:
            raise KeyError(key) from None
        with file:
            owner = os.fstat(file.fileno()).st_uid
            if owner != os.geteuid():
                raise PermissionError(
                    f"{path} is a file of user {owner}, who could be anybody: use a directory that only this "
                    "user may write"
                )
            return file.read()

    def since(self, key: str) -> float:
        """When it was set, by the clock of the file system. Raises KeyError."""
        try:
            return self._file(key).stat().st_mtime
        except FileNotFoundError:
            raise KeyError(key) from None

    def _file(self, key: str) -> Path:
        return self.path / quote(key, safe="")

    def __repr__(self) -> str:
        return f"directory {str(self.path)!r}"


def open_store(store: Store | str | os.PathLike[str]) -> Store:
    """A path becomes a Directory. Raises TypeError for what is neither path nor store."""
    if isinstance(store, (str, os.PathLike)):
        return Directory(store)
    if callable(getattr(store, "set", None)) and callable(getattr(store, "get", None)):
        return store
    raise TypeError(
        f"store must be a directory, or have set(key, bytes) and get(key), not {type(store).__name__}"
    )


class Addresses:
    """The addresses of a World's ranks in a store, under keys of their own."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store, self._prefix = store, prefix
        self._since = 0.0  # when the own address was published in a directory

    def publish(self, rank: int, address: bytes) -> None:
        self._store.set(self._key(rank), address)
        if isinstance(self._store, Directory):
            self._since = self._store.since(self._key(rank))

    def leave(self, rank: int, address: bytes) -> None:
        """A rank has published that address and leaves. Said in a directory alone, where others may look later."""
        if isinstance(self._store, Directory) and self._look(self._key(rank)) == address:
            self._store.set(self._key(rank), _LEFT)

    def wait(self, rank: int, timeout: float) -> bytes:
        """The address, once it is there. Raises TransferTimeout after `timeout` seconds, PeerLost: it has left."""
        key, end = self._key(rank), time.monotonic() + timeout
        if hasattr(self._store, "wait"):  # of PyTorch: its get() would wait for its own timeout
            return self._wait_in_torch(key, end)
        pause = _FIRST_PAUSE
        while not (address := self._look(key)):
            if address is not None and self._has_left(key):
                raise PeerLost(f"rank {rank} has left before it was needed")
            if time.monotonic() >= end:
                raise self._missing(key)
            # No store says when it gets a key: the look decides, the pause leaves the CPU to others.
            time.sleep(min(pause, max(0.0, end - time.monotonic())))
            pause = min(2 * pause, _LONGEST_PAUSE)
        return address

    def renewed(self, rank: int, address: bytes, timeout: float) -> bool:
        """Whether another address takes the place of this one, which leads nowhere, within `timeout` seconds.

        Only a directory may have it from an earlier run. Looks once at least.
        """
        if not isinstance(self._store, Directory):
            return False
        end = time.monotonic() + timeout
        while self._look(self._key(rank)) == address:
            if time.monotonic() >= end:
                return False
            time.sleep(_LONGEST_PAUSE)  # as above
        return True

    def _wait_in_torch(self, key: str, end: float) -> bytes:
        left = max(1e-3, end - time.monotonic())  # 0 would be no bound at all
        store: Any = self._store
        try:
            store.wait([key], timedelta(seconds=left))
        except RuntimeError as error:
            if time.monotonic() < end - 0.5:
                raise Error(f"{store!r} cannot be asked for {key!r}: {error}") from error
            raise self._missing(key) from error
        return bytes(store.get(key))

    def _has_left(self, key: str) -> bool:
        """In this run: a rank that had left before this one came may as well be one of an earlier run."""
        with suppress(KeyError):
            return isinstance(self._store, Directory) and self._store.since(key) >= self._since
        return False

    def _look(self, key: str) -> bytes | None:
        with suppress(KeyError):
            value = self._store.get(key)
            return None if value is None else bytes(value)
        return None

    def _missing(self, key: str) -> TransferTimeout:
        return TransferTimeout(
            f"{self._store!r} has no {key!r} yet: has that rank made its World, with the same store and name?"
        )

    def _key(self, rank: int) -> str:
        return f"{self._prefix}/{rank}"
