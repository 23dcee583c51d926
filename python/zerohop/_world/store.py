"""Where the ranks of a World find each other's addresses: a directory, or any store of keys and bytes."""

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
_MOST = 40  # links on one way, as in Linux (man 7 path_resolution)


def _refuse_links_of_others(path: Path) -> None:
    """Raises PermissionError for the first link on the way to `path` that is neither this user's nor root's.

    What is not there yet is no link. As the kernel's protected_symlinks (man 5 proc_sys_fs) has it, but in every directory.
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
                f"on the way to {path} there is a symbolic link of user {found.st_uid}, {there}, who could lead it anywhere: "
                "remove it, or name a directory by a way without it",
            )
        links += 1
        if links > _MOST:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = Path(os.readlink(there))
        here = Path("/") if target.is_absolute() else here
        left += _names(target)


def _names(path: Path) -> list[str]:
    """Of its parts, the last one first."""
    return [part for part in reversed(path.parts) if part != path.anchor]


class Store(Protocol):
    """What PyTorch's TCPStore, FileStore and HashStore are, and whatever else has these two methods.

    ``get`` of a key that nobody has set yet waits, returns None or raises KeyError. It hands addresses out,
    which are secrets: nobody else may read it.
    """

    def set(self, key: str, value: Any, /) -> Any: ...  # bytes; PyTorch's type hints say str
    def get(self, key: str, /) -> Any: ...


class Directory:
    """A Store in files of a directory that all ranks see, each whole at any time and for this user alone.

    Raises NotADirectoryError, and PermissionError where others may write, as they could put files there, or take them away,
    and where a symbolic link of another user leads.
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
                f"{self.path} is a directory of user {found.st_uid}, and addresses there are secrets: name one that does "
                "not exist yet"
            )
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(
                f"{self.path} may be written by other users (its mode is {stat.S_IMODE(found.st_mode):o}), and addresses "
                f"there are secrets: chmod go-w {shlex.quote(str(self.path))}, or name a directory that does not exist yet"
            )

    def set(self, key: str, value: bytes) -> None:
        self._draft(key, value).replace(self._file(key))  # at once: nobody reads a part of it

    def set_once(self, key: str, value: bytes) -> None:
        """Unless it has been set, in one step for all who try (man 2 link). Raises OSError: there are no links."""
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
        """Raises KeyError, and PermissionError for a file that another user has put there."""
        path = self._file(key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would have it wait
        except FileNotFoundError:
            raise KeyError(key) from None
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            _check_owner(path, found.st_uid)
            if not stat.S_ISREG(found.st_mode):
                raise PermissionError(f"{path} is no file: use a directory for this job alone")
            return file.read()

    def since(self, key: str) -> float:
        """When it was set, by the clock of the file system. Raises KeyError."""
        try:
            return self._file(key).stat().st_mtime
        except FileNotFoundError:
            raise KeyError(key) from None

    def locks(self, key: str) -> ByteLocks:
        """Of a file beside the others, whose name no key of an entry has. Raises OSError, PermissionError."""
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
            f"{path} is a file of user {user}, who could be anybody: use a directory that only this user may write"
        )


def open_store(store: Store | str | os.PathLike[str]) -> Store:
    """A path becomes a Directory. Raises TypeError for what is neither path nor store."""
    if isinstance(store, (str, os.PathLike)):
        return Directory(store)
    if callable(getattr(store, "set", None)) and callable(getattr(store, "get", None)):
        return store
    raise TypeError(
        f"store must be a directory, or have set(key, bytes) and get(key), not {type(store).__name__}"
    )


def is_of_torch(store: Store) -> bool:
    distributed = sys.modules.get("torch.distributed")  # who has one of its stores has imported it
    return distributed is not None and isinstance(store, distributed.Store)


def peek(store: Store, key: str) -> bytes | None:
    """What has been set, now; None: nothing. A store that is not PyTorch's and whose get() waits does so here, too."""
    torches: Any = store
    if is_of_torch(store) and not torches.check([key]):
        return None
    with suppress(KeyError):
        value = store.get(key)
        return None if value is None else bytes(value)
    return None


def set_once(store: Store, key: str, value: bytes) -> bytes:
    """Sets it unless it has been set, in one step for all who try. Returns what it holds then.

    Raises TypeError for a store that cannot: it needs ``compare_set(key, expected, desired)`` as PyTorch's have it, or
    ``setnx(key, value)`` as Redis has.
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
        "it has neither compare_set(key, expected, desired) nor setnx(key, value), one of which it takes to agree"
    )


def _inherits_it(store: Store) -> bool:
    """Whether compare_set is only that of PyTorch's base class, which raises."""
    return "compare_set" not in vars(type(store)) and not type(store).__module__.startswith(
        "torch."
    )


ANSWER = 5.0  # seconds for a call that has nothing to wait for
_T = TypeVar("_T")


class Answers:
    """Calls of one store of PyTorch, bounded: its TCPStore waits without end for a server that is stopped or out of reach.

    Calls of other stores are made as they are. Any thread.
    """

    def __init__(self, store: Store) -> None:
        self._bounded = is_of_torch(store)
        self._late: Future[Any] | None = None

    def of(self, call: Callable[[], _T], seconds: float = ANSWER) -> _T:
        """What the call returns or raises. Raises TimeoutError: it goes on, and until it ends no other one begins.

        So what it writes late does not replace what a later call has written.
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
    except BaseException as error:  # noqa: BLE001  raised to whoever waits
        answer.set_exception(error)
