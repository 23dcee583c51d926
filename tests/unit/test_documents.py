"""README and the chapters in docs: every block of code runs, every command is one, every page is found; the API reference."""

import importlib
import inspect
import re
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
import zerohop as zh
from support.pages import GPU, PAGES, blocks, commands, program, promised, text
from support.program import run_python
from zerohop import cli
from zerohop.doctor.far_end import MAGIC, encode

# Programs that a page has as a file, each with a test in test_readme.py; blocks for a GPU have theirs in
# test_readme.py and tests/gpu/test_page_programs.py.
FILES = {
    "docs/transfers.md": ["exchange.py"],
    "docs/world.md": ["job.py"],
    "docs/collectives.md": ["share.py"],
    "docs/torch.md": ["rows.py", "ring.py"],
}
ON_A_GPU = ["docs/kernels.md", "docs/streams.md"]
PROGRAMS = [page for page in PAGES if program(page)]
ELSEWHERE = {"metrics=9400": "metrics=0"}  # a port that is free
SHELL = re.compile(r"^\(umask 077; (.*?)( > \w+)?\)$")


def test_every_block_of_python_is_run_by_a_test():
    for page in PAGES:
        marks = [block.mark for block in blocks(page) if block.language == "python" and block.mark]
        files = [mark.removeprefix("file: ") for mark in marks if mark.startswith("file: ")]
        assert files == FILES.get(page, [])
        assert {mark for mark in marks if not mark.startswith("file: ")} <= {GPU}
        assert (GPU in marks) == (page in ON_A_GPU)
        assert len(blocks(page)) * 2 == len(re.findall(r"^ *```", text(page), re.MULTILINE))
        assert {block.language for block in blocks(page)} <= {"", "python", "mermaid"}


@pytest.mark.parametrize("page", PROGRAMS)
def test_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROHOP_DEVICE", "soft0")
    code = program(page)
    for shown, taken in ELSEWHERE.items():
        code = code.replace(shown, taken)
    done = run_python("-c", code, seconds=100, warnings="error", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    printed = done.stdout.splitlines()
    for line in promised(code):
        assert line in printed


@pytest.mark.parametrize("page", ON_A_GPU)
def test_what_needs_a_gpu_is_python(page):
    compile(program(page, GPU), page, "exec")


@pytest.mark.parametrize("page", PAGES)
def test_what_is_linked_is_there(page, repository):
    prose = re.sub(r"^```.*?^```", "", text(page), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s#]+)", prose)
    folder = (repository / page).parent
    gone = [target for target in targets if "://" not in target and not (folder / target).exists()]
    assert gone == []


def test_readme_leads_to_every_page():
    linked = set(re.findall(r"\]\((docs/\w+\.md)", text("README.md")))
    assert linked == set(PAGES) - {"README.md"}


def check_zerohop(arguments: list[str]) -> None:
    """That its options and arguments are known; nothing is run."""
    group: click.Command = cli.main
    name = "zerohop"
    while isinstance(group, click.Group):
        name, *arguments = arguments
        assert name in group.commands
        group = group.commands[name]
    with group.make_context(name, arguments):
        pass  # files that it opens are closed


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_there(page, repository, tmp_path, monkeypatch):
    monkeypatch.setattr("zerohop.bench.plot.check_plot", lambda path: None)  # it wants matplotlib
    monkeypatch.chdir(tmp_path)
    for name in ("old.json", "new.json", "rank0.json", "rank1.json"):
        Path(name).touch()
    Path("address").write_text(encode(MAGIC))
    targets = set(re.findall(r"^(\w+):.*## ", (repository / "Makefile").read_text(), re.MULTILINE))
    for line in commands(page):
        words = SHELL.sub(r"\1", line).split()
        if words[0] == "zerohop":
            check_zerohop(words[1:])
        elif words[0] == "make":
            assert words[1] in targets
        elif "-m" in words and (name := words[words.index("-m") + 1]).startswith("zerohop"):
            assert find_spec(name), line


def test_each_extra_is_in_the_table(repository):
    project = (repository / "pyproject.toml").read_text()
    [extras] = re.findall(
        r"^\[project\.optional-dependencies\]\n(.*?)\n\n", project, re.MULTILINE | re.DOTALL
    )
    for extra in re.findall(r"^(\w+) = ", extras, re.MULTILINE):
        assert f"`pip install 'zerohop[{extra}]'`" in text("docs/machine.md")


def test_errors_are_the_ones_that_there_are():
    [table] = re.findall(
        r"^\| error \|.*?\n\n", text("docs/guarantees.md"), re.MULTILINE | re.DOTALL
    )
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    public = [getattr(zh, name) for name in zh.__all__]
    errors = {c.__name__ for c in public if isinstance(c, type) and issubclass(c, zh.Error)}
    assert set(listed) == errors - {"Error"}


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


def test_the_reference_tells_signatures_and_inherited_members(repository, tmp_path):
    assert re.search(r"\d+ links checked", make_docs(repository, tmp_path))
    page = (tmp_path / "zerohop.html").read_text()
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))
    assert "def write( self, source: typing.Any, destination: RemoteMemory, *, notify" in plain
    assert "def empty( self, shape" in plain
    assert 'id="World.broadcast"' in page
    assert (tmp_path / "zerohop" / "torch.html").exists()


@pytest.mark.parametrize("name", MODULES)
def test_all_that_is_public_is_listed(name):
    module = importlib.import_module(name)
    unreported = [
        public for public in module.__all__ if not inspect.getdoc(getattr(module, public))
    ]
    assert unreported == []


PUBLIC = [thing for name in zh.__all__ if inspect.isclass(thing := getattr(zh, name))]


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.__name__)
def test_all_members_are_listed(public):
    unreported = [
        name
        for name in dir(public)
        if not name.startswith("_")
        and not hasattr(OSError, name)
        and not inspect.getdoc(inspect.getattr_static(public, name))
    ]
    assert unreported == []
