"""Symbolic links of other users: who may make one in /tmp could lead this user anywhere."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

__all__ = ["refuse_links_of_others"]

_ROOT = 0
_MOST = 40  # links on one way, as in Linux (man 7 path_resolution)


def refuse_links_of_others(path: Path) -> None:
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
