"""docs/architecture.md names what is there."""

import re

import pytest

CODE = {".cpp", ".hpp", ".cu", ".cuh"}


@pytest.fixture(scope="module")
def page(repository):
    return (repository / "docs/architecture.md").read_text()


@pytest.fixture(scope="module")
def sources(repository):
    files = (path for path in sorted((repository / "cpp").rglob("*")) if path.suffix in CODE)
    return "\n".join(path.read_text() for path in files)


def missing_names(page: str, sources: str) -> list[str]:
    """Functions and classes of the page, in backticks, that no source declares."""
    missing = []
    for name in re.findall(r"`([A-Za-z_]+(?:::[a-z_]+)?)`", page):
        owner, _, function = name.rpartition("::")
        if function and owner:
            bodies = re.findall(
                rf"\b(?:class|struct) {owner}\b[^;]*?{{.*?\n}};", sources, re.DOTALL
            )
            found = any(re.search(rf"\b{function}\(", body) for body in bodies)
        elif name[0].isupper():
            found = re.search(rf"\b(class|struct) {name}\b", sources) is not None
        else:
            found = re.search(rf"\b{name}\b", sources) is not None
        if not found:
            missing.append(name)
    return missing


def test_its_names_exist(page, sources):
    assert missing_names(page, sources) == []


def test_its_files_exist(page, repository):
    named = re.findall(r"`?((?:cpp|python|tests)/[a-z_/.]+)", page)
    assert named
    assert [name for name in named if not (repository / name.rstrip("/")).exists()] == []


def test_its_rooms_are_those_of_the_engine(page, repository):
    picture = page.split("```")[1]
    engine = repository / "cpp/engine"
    rooms = [path.name for path in engine.rglob("*") if path.is_dir()]
    assert [room for room in rooms if not re.search(rf"\b{room}\b", picture)] == []


def test_its_threads_are_those_that_are_started(page, sources):
    started = set(re.findall(r'"(zh-[a-z-]+|zerohop-softhca)"', sources))
    table = {
        name
        for row in re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE)
        for name in re.findall(r"`([a-z-]+)`", row)
    }
    assert table == started
