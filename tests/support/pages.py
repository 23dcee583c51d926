"""README and the chapters in docs: their blocks of code, as they are to be run.

A comment before a block of Python tells what it is, unless it is part of the page's own program, which a reader types in from
the top: ``<!-- file: NAME -->``, a program of its own; ``<!-- on a GPU -->``, one of a program that needs a GPU.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
GPU = "on a GPU"

_BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """mark: what the comment before it says; "": there is none."""

    page: str
    mark: str
    language: str
    text: str


def text(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(page: str) -> list[Block]:
    return [Block(page, *found) for found in _BLOCK.findall(text(page))]


def snippet(page: str, word: str, language: str = "python") -> str:
    """The one block of the page, in that language, that has the word."""
    [block] = [b for b in blocks(page) if b.language == language and word in b.text]
    return block.text


def saved(page: str, file: str) -> str:
    """The program that the page has as that file."""
    [block] = [block for block in blocks(page) if block.mark == f"file: {file}"]
    return block.text


def program(page: str, mark: str = "") -> str:
    """What a reader who types all in has run at the end of the page."""
    return "\n".join(b.text for b in blocks(page) if b.language == "python" and b.mark == mark)


def promised(code: str) -> list[str]:
    """What the comments behind print() say that it prints, where they say it word for word: from a digit or a bracket on."""
    reported = re.findall(r"^ *print\(.*\)  # ([\d\[(].*|soft0\S*)$", code, re.MULTILINE)
    return [re.split(r": | \(", line)[0] for line in reported]


def commands(page: str) -> list[str]:
    """The lines of the blocks that have no language: what one types into a shell."""
    lines = [
        line for block in blocks(page) if not block.language for line in block.text.split("\n")
    ]
    return [re.sub(r" +#.*", "", line) for line in lines if line.strip()]
