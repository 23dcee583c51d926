"""The API reference: made from the docstrings, and with no link that leads nowhere."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
import zerohop as zh
from support.program import run_python

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
    done = run_python(repository / ".ci" / "docs", folder, seconds=100)
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
