"""The folders where processes of one user find each other's sockets; nobody else may enter them."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def _candidates() -> list[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "") or f"/run/user/{os.geteuid()}"
    return [Path(runtime, "zerohop"), Path(tempfile.gettempdir(), f"zerohop-{os.geteuid()}")]


def _is_own(path: Path) -> bool:
    """Must not be a link either: another user could make one in /tmp that leads elsewhere."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    )


def folders() -> list[Path]:
    """The existing ones that belong only to this user."""
    return [path for path in dict.fromkeys(_candidates()) if _is_own(path)]


def own_folder() -> Path:
    """The first one that exists or can be made. Raises OSError."""
    for path in _candidates():
        with suppress(OSError):
            path.mkdir(mode=0o700)
        if _is_own(path):
            return path
    last = _candidates()[-1]
    raise OSError(
        errno.EACCES,
        f"no folder belongs only to this user: {str(last)!r} cannot be made, belongs to another user, or is open to others; "
        "remove it, or set XDG_RUNTIME_DIR to a folder of your own",
    )
