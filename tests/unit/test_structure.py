"""The source tree keeps its shape: includes and imports go one way, siblings do not meet, files stay short.

base <- {shm, driver <- {softhca, gpu, rdma}} <- engine <- gda <- bindings

The rooms of the engine come in the order of ROOMS; what lies in cpp/engine itself comes before them.
"""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

RANK = {
    "base": 0,
    "shm": 1,
    "driver": 1,
    "softhca": 2,
    "gpu": 2,
    "rdma": 2,
    "engine": 3,
    "gda": 4,
    "bindings": 5,
}
ROOMS = [
    "",
    "stats",
    "notify",
    "wait",
    "memory",
    "stream",
    "channel",
    "path",
    "path/verbs",
    "path/staged",
    "path/local",
    "path/gpu",
    "integrity",
    "peer",
    "control",
    "core",
    "collective",
]
CODE = {".cpp", ".hpp", ".h", ".cu", ".cuh"}
TEXT = CODE | {".cmake", ".py", ".pyi", ".sh", ".txt"}
DEVICE = "python/zerohop/include"  # headers for kernels of the program; they include nothing else
GENERATED = re.compile(r"^python/zerohop/_core(\.pyi$|/)")  # by `make stubs`
MAX_LINES = 400

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
PYTHON = re.compile(r"^(pybind11/|Python\.h$)")
# Frameworks bring other copies of the C++ library into the process; streams of two share locale state, and hang or crash.
STREAMS = re.compile(
    r"^(fstream|iostream|istream|ostream|iomanip|sstream|spanstream|syncstream|locale|regex|format|print)$"
)
HARDWARE = re.compile(r"^(infiniband/|rdma/|cuda|nvml|nvrtc)")


def files(root: Path, folders: tuple[str, ...], suffixes: set[str]) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in suffixes and "__pycache__" not in path.parts:
                yield path


def room_problem(room: str, target: str) -> str | None:
    """Why a file of that room of the engine must not include the target; None when it may."""
    other = target.removeprefix("engine/").rpartition("/")[0]
    if room not in ROOMS or other not in ROOMS:
        return f"{room if room not in ROOMS else other} is not a room of the engine"
    if ROOMS.index(other) > ROOMS.index(room):
        return "includes go from later rooms to earlier ones"
    return None


def include_problem(root: Path, name: Path, mark: str, target: str) -> str | None:
    """Why the file must not include the target; None when it may."""
    layer = name.parts[1]
    first = target.split("/")[0]
    if PYTHON.match(target) and layer != "bindings":
        return "only bindings know Python"
    if STREAMS.match(target):
        return "no iostreams, nor what uses locales: base/text_file.hpp, snprintf, to_chars"
    if HARDWARE.match(target) and layer == "base":
        return "base knows neither CUDA nor verbs"
    if mark == '"' and not any((root / top / target).is_file() for top in ("cpp", DEVICE)):
        return 'our headers are named from cpp/, as "layer/noun.hpp"'
    if first == layer == "engine":
        return room_problem("/".join(name.parts[2:-1]), target)
    is_of_system = mark == "<" and not (root / "cpp" / target).is_file()  # rdma/rdma_cma.h
    if first not in RANK or first == layer or is_of_system:
        return None
    if RANK[first] == RANK[layer]:
        return "siblings do not include each other"
    if RANK[first] > RANK[layer]:
        return "includes go from later layers to earlier ones"
    return None


def include_problems(root: Path) -> list[str]:
    found = []
    for path in files(root, ("cpp",), CODE):
        name = path.relative_to(root)
        layer = name.parts[1]
        if layer not in RANK:
            found.append(f"{name}: {layer} is not a layer")
            continue
        for mark, target in INCLUDE.findall(path.read_text()):
            problem = include_problem(root, name, mark, target)
            if problem:
                found.append(f"{name} includes {target}: {problem}")
    return found


def device_problems(root: Path) -> list[str]:
    """They are compiled at run time, too, where there is no standard library."""
    return [
        f"{path.relative_to(root)} includes {target}"
        for path in files(root, (DEVICE,), CODE)
        for mark, target in INCLUDE.findall(path.read_text())
        if not (
            mark == '"' and target.startswith("zerohop/") and (root / DEVICE / target).is_file()
        )
    ]


def length_problems(root: Path) -> list[str]:
    found = []
    for path in files(root, ("cpp", "python", "tests"), TEXT):
        name = path.relative_to(root).as_posix()
        lines = len(path.read_text().splitlines())
        if lines > MAX_LINES and not GENERATED.match(name):
            found.append(f"{name}: {lines} lines, at most {MAX_LINES}")
    return found


def python_imports(root: Path) -> dict[str, set[str]]:
    """What each module of the package imports of it, also for type checkers alone and within functions."""
    top = root / "python"
    paths = {
        ".".join(path.relative_to(top).with_suffix("").parts).removesuffix(".__init__"): path
        for path in files(root, ("python/zerohop",), {".py", ".pyi"})
    }
    found: dict[str, set[str]] = {}
    for module, path in paths.items():
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                full = (f"{node.module}.{alias.name}" for alias in node.names)
                names.update(name if name in paths else node.module for name in full)
        found[module] = names & paths.keys() - {module}
    return found


def import_circle(root: Path) -> list[str]:
    """One of them; empty where there is none."""
    try:
        TopologicalSorter(python_imports(root)).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def test_imports_have_no_circle(repository):
    assert "zerohop.world" in python_imports(repository)["zerohop"]
    assert import_circle(repository) == []


def test_includes_go_one_way(repository):
    assert include_problems(repository) == []


def test_device_headers_stand_alone(repository):
    assert list(files(repository, (DEVICE,), CODE))
    assert device_problems(repository) == []


def test_files_are_short(repository):
    assert length_problems(repository) == []


def test_every_layer_is_seen(repository):
    """The checks above look at something: each folder of cpp/ that has code is a known layer."""
    seen = {p.relative_to(repository).parts[1] for p in files(repository, ("cpp",), CODE)}
    assert {"base", "driver", "softhca", "rdma", "engine", "bindings"} <= seen
