"""The store in which the ranks of a World find each other's addresses: a directory, or any store of keys and bytes."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote
from uuid import uuid4

from zerohop._world.locks import ByteLocks

_ROOT = 0
_MOST = 40  # symbolic links in one path, as in Linux (man 7 path_resolution)


def _refuse_links_of_others(path: Path) -> None:
    """Raises PermissionError for the first symbolic link in `path` that belongs to neither this user nor root.

    Missing parts are not links. Like the kernel's protected_symlinks (man 5 proc_sys_fs), but in every directory.
    """
    here, left = Path("/"), _names(Path.cwd() / path)
    links = 0
    while left:
        name = left.pop()
        there = here.parent if name == ".." else here / name
        try:
            found = there.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISLNK(found.st_mode):
            here = there
            continue
        if found.st_uid not in (_ROOT, os.geteuid()):
            raise PermissionError(
                errno.EACCES,
                f"{there}, in the path {path}, is a symbolic link of user {found.st_uid}, who could redirect it: "
                "remove it, or use a path without it",
            )
        links += 1
        if links > _MOST:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = Path(os.readlink(there))
        here = Path("/") if target.is_absolute() else here
        left += _names(target)


def _names(path: Path) -> list[str]:
    """The names of its parts, the last one first."""
    return [part for part in reversed(path.parts) if part != path.anchor]


class Store(Protocol):
    """PyTorch's TCPStore, FileStore and HashStore, and anything else with these two methods.

    ``get`` of a key that nobody has set yet waits, returns None or raises KeyError. The store holds addresses,
    which are secrets: nobody else may read it.
    """

    def set(self, key: str, value: Any, /) -> Any: ...  # bytes; PyTorch's type hints say str
    def get(self, key: str, /) -> Any: ...


class Directory:
    """A Store in files of a directory that all ranks see. Files are replaced atomically, and only this user can read them.

    Raises NotADirectoryError; PermissionError if other users may write there, because they could add or remove files,
    or if the path has a symbolic link of another user.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        _refuse_links_of_others(self.path)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(
                f"{self.path} is a file: a World needs a directory of its own"
            ) from None
        found = self.path.stat()
        if found.st_uid not in (0, os.geteuid()):
            raise PermissionError(
                f"{self.path} is a directory of user {found.st_uid}, and addresses there are secrets: use one that does "
                "not exist yet"
            )
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(
                f"{self.path} may be written by other users (its mode is {stat.S_IMODE(found.st_mode):o}), and addresses "
                f"there are secrets: chmod go-w {shlex.quote(str(self.path))}, or use a directory that does not exist yet"
            )

    def set(self, key: str, value: bytes) -> None:
        self._draft(key, value).replace(self._file(key))  # atomically: nobody reads a part of it

    def set_once(self, key: str, value: bytes) -> None:
        """Sets the key unless it has been set, atomically (man 2 link). Raises OSError: there are no hard links."""
        draft = self._draft(key, value)
        try:
            with suppress(FileExistsError):
                os.link(draft, self._file(key))
        except PermissionError as error:
            raise OSError(
                error.errno, f"{self.path} is on a file system without hard links"
            ) from None
        finally:
            draft.unlink(missing_ok=True)  # NFS may have repeated it

    def _draft(self, key: str, value: bytes) -> Path:
        target = self._file(key)
        draft = target.with_name(f".{target.name}.{uuid4().hex}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(value)
        return draft

    def get(self, key: str) -> bytes:
        """Raises KeyError, and PermissionError for a file of another user."""
        path = self._file(key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would wait
        except FileNotFoundError:
            raise KeyError(key) from None
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            _check_owner(path, found.st_uid)
            if not stat.S_ISREG(found.st_mode):
                raise PermissionError(f"{path} is not a file: use a directory for this job only")
            return file.read()

    def since(self, key: str) -> float:
        """The time when it was set, by the clock of the file system. Raises KeyError."""
        try:
            return self._file(key).stat().st_mtime
        except FileNotFoundError:
            raise KeyError(key) from None

    def locks(self, key: str) -> ByteLocks:
        """Locks on an additional file, whose name is not a key of an entry. Raises OSError, PermissionError."""
        path = self._file(key)
        locks = ByteLocks(path)
        _check_owner(path, locks.owner)
        return locks

    def _file(self, key: str) -> Path:
        return self.path / quote(key, safe="")

    def __repr__(self) -> str:
        return f"directory {str(self.path)!r}"


def _check_owner(path: Path, user: int) -> None:
    if user != os.geteuid():
        raise PermissionError(
            f"{path} belongs to user {user}: use a directory that only this user may write"
        )


def open_store(store: Store | str | os.PathLike[str]) -> Store:
    """Makes a path a Directory. Raises TypeError for anything but a path or a store."""
    if isinstance(store, (str, os.PathLike)):
        return Directory(store)
    if callable(getattr(store, "set", None)) and callable(getattr(store, "get", None)):
        return store
    raise TypeError(
        f"store must be a directory, or have set(key, bytes) and get(key), not {type(store).__name__}"
    )


def is_of_torch(store: Store) -> bool:
    # A program with one of its stores has imported it.
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and isinstance(store, distributed.Store)


def peek(store: Store, key: str) -> bytes | None:
    """The current value; None: not set. If get() of another store than PyTorch's waits, this waits, too."""
    torches: Any = store
    if is_of_torch(store) and not torches.check([key]):
        return None
    with suppress(KeyError):
        value = store.get(key)
        return None if value is None else bytes(value)
    return None


def set_once(store: Store, key: str, value: bytes) -> bytes:
    """Sets the key unless it has been set, atomically. Returns its value after that.

    Raises TypeError for a store that cannot do that: it needs ``compare_set(key, expected, desired)`` like PyTorch's stores, or
    ``setnx(key, value)`` like Redis.
    """
    known: Any = store
    if isinstance(store, Directory):
        store.set_once(key, value)
        return store.get(key)
    if callable(getattr(store, "compare_set", None)):
        with suppress(NotImplementedError, RuntimeError) if _inherits_it(store) else nullcontext():
            return bytes(known.compare_set(key, "", value.decode()))
    if callable(getattr(store, "setnx", None)):
        known.setnx(key, value)
        return bytes(store.get(key))
    raise TypeError(
        "it has neither compare_set(key, expected, desired) nor setnx(key, value); agreement needs one of them"
    )


def _inherits_it(store: Store) -> bool:
    """Whether compare_set is only the one of PyTorch's base class, which raises."""
    return "compare_set" not in vars(type(store)) and not type(store).__module__.startswith(
        "torch."
    )


ANSWER = 5.0  # seconds for a call that need not wait
_T = TypeVar("_T")


class Answers:
    """Bounds the calls of a PyTorch store: TCPStore waits for ever for a server that is stopped or out of reach.

    Calls of other stores are made directly. Thread-safe.
    """

    def __init__(self, store: Store) -> None:
        self._bounded = is_of_torch(store)
        self._late: Future[Any] | None = None

    def of(self, call: Callable[[], _T], seconds: float = ANSWER) -> _T:
        """The result of the call. Raises TimeoutError: the call continues, and until it ends no other one begins.

        So a late write cannot replace the value of a later call.
        """
        if not self._bounded:
            return call()
        if self._late is not None and not self._late.done():
            raise TimeoutError("an earlier call has had no answer yet")
        answer: Future[_T] = Future()
        threading.Thread(target=_make, args=(call, answer), daemon=True).start()
        if not wait([answer], seconds).done:
            self._late = answer
            raise TimeoutError(f"no answer in {seconds:.1f} s")
        return answer.result()


def _make(call: Callable[[], _T], answer: Future[_T]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:  # noqa: BLE001  raised again in the waiting thread
        answer.set_exception(error)
