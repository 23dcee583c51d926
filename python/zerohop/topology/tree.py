"""A tree of small text files such as /sys: the real one, or one that tests have made."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any


def natural(name: str) -> list[Any]:
    """Sort key that puts mlx5_2 before mlx5_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


class Tree:
    """Files that cannot be read (absent, forbidden, refused by the driver) are None or empty, never an error."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).resolve()
        self._prefix = f"{self.root}/"

    def text(self, path: str) -> str | None:
        try:  # not Path, which is slow: a machine has thousands of GIDs, one file each
            with open(f"{self._prefix}{path}", "rb") as file:
                return file.read().decode(errors="replace").strip()
        except OSError:  # sysfs answers EINVAL for an unused GID, EACCES in some containers, ...
            return None

    def integer(self, path: str) -> int | None:
        """A decimal or 0x... number; None also if the file has no number."""
        try:
            return int(self.text(path) or "", 0)
        except ValueError:
            return None

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(f"{self._prefix}{path}"), key=natural)
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def target(self, path: str) -> Path | None:
        """The target of a link in the tree, relative to its root."""
        link = self.root / path
        if not link.exists():
            return None
        end = link.resolve()
        return end.relative_to(self.root) if end.is_relative_to(self.root) else None
