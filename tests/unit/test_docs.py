"""The API reference: made from the docstrings, and with no link that leads nowhere."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import zerohop as zh

MODULES = [
    "zerohop",
    "zerohop.aio",
    "zerohop.notebook",
    "zerohop.numba",
    "zerohop.scale",
    "zerohop.torch",
    "zerohop.verbs",
]


def make_docs(repository: Path, folder: Path) -> str:
    command = [sys.executable, repository / ".ci" / "docs", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_reference_tells_signatures_and_inherited_members(
    repository: Path, tmp_path: Path
) -> None:
    assert re.search(r"\d+ links checked", make_docs(repository, tmp_path))
    page = (tmp_path / "zerohop.html").read_text()
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))
    assert "def write( self, source: typing.Any, destination: RemoteMemory, *, notify" in plain
    assert "def empty( self, shape" in plain
    assert 'id="World.broadcast"' in page
    assert (tmp_path / "zerohop" / "torch.html").exists()


def test_a_link_that_leads_nowhere_is_found(repository: Path, tmp_path: Path) -> None:
    names: dict[str, object] = {"__file__": str(repository / ".ci" / "docs"), "__name__": "docs"}
    exec((repository / ".ci" / "docs").read_text(), names)  # noqa: S102
    page, other = tmp_path / "a.html", tmp_path / "b.html"
    other.write_text('<p id="there">')
    links = ["b.html", "b.html#there", "b.html#gone", "#here", "c.html", "https://example.org/x"]
    page.write_text("".join(f'<a href="{link}"></a>' for link in links) + '<i id="here"></i>')
    pages = {file: names["Page"](file.read_text()) for file in (page, other)}  # type: ignore[operator]
    broken = names["broken_links"]({f: (p.places, p.links) for f, p in pages.items()})  # type: ignore[operator]
    assert broken == [f"{page}: b.html#gone leads nowhere", f"{page}: c.html leads nowhere"]


@pytest.mark.parametrize("name", MODULES)
def test_all_that_is_public_is_told_of(name: str) -> None:
    module = importlib.import_module(name)
    untold = [public for public in module.__all__ if not inspect.getdoc(getattr(module, public))]
    assert untold == []


PUBLIC = [thing for name in zh.__all__ if inspect.isclass(thing := getattr(zh, name))]


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.__name__)
def test_all_members_are_told_of(public: type) -> None:
    untold = [
        name
        for name in dir(public)
        if not name.startswith("_")
        and not hasattr(OSError, name)
        and not inspect.getdoc(inspect.getattr_static(public, name))
    ]
    assert untold == []
