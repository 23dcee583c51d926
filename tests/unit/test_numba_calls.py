"""The calls of zerohop.numba have the types of their functions, and kernels with them link: all but a run, which takes a GPU."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import zerohop as zh
from numba.core.errors import TypingError
from support.numba_linker import linked
from support.program import run_python
from zerohop import numba as zn

sys.path.append(str(Path(__file__).parents[1] / "gpu"))
from numba_kernels import SIGNATURES

HEADERS = Path(zh.include_dir()) / "zerohop"


@pytest.mark.parametrize("kernel", SIGNATURES, ids=lambda kernel: kernel.__name__)
def test_the_kernels_of_the_gpu_tests_link(kernel):
    assert linked(kernel, SIGNATURES[kernel]).startswith(b"\x7fELF")


def test_those_kernels_make_every_call():
    made = {name for kernel in SIGNATURES for name in kernel.__code__.co_names}
    assert {name for name in zn.__all__ if name.islower()} <= made


@pytest.mark.parametrize("team", ["THREAD", "WARP", "BLOCK"])
def test_of_a_constant_team_a_kernel_has_the_code_alone(team):
    number = getattr(zn, team)

    def kernel(board, said):
        said[0] = zn.wait_notify(board, 7, 1000, number)[0]

    text = linked(kernel, "void(int64, int32[::1])", ptx=True).decode()
    assert ("bar.sync" in text) == (team == "BLOCK")
    assert ("shfl.sync" in text) == (team == "WARP")
    assert "zerohop_" not in text  # neither a call nor a function that is called


def test_what_has_no_such_type_is_refused():
    def kernel(queue, value):
        zn.fetch_add(queue, 0, value)

    with pytest.raises(TypingError, match=r"fetch_add\(int64, .*float32\)"):
        linked(kernel, "void(int64, float32)")


# --- what is declared is what there is: nobody else compares the two ---

NUMBA_OF = {
    "Status*": "int32",
    "u32*": "uint32",
    "Begun*": "Tuple(int32, uint32)",
    "Taken*": "Tuple(int32, uint32)",
    "Noticed*": "Tuple(int32, uint32, uint32)",
    "u32": "uint32",
    "u64": "uint64",
}


def defined() -> dict[str, list[str]]:
    """Of each function of numba.cuh the types, of what it says first."""
    text = (HEADERS / "numba.cuh").read_text().replace("\\\n", " ")
    plain, of_types = text.split("#define ZEROHOP_ELEMENT")
    found = {}

    def read(text: str, known: dict[str, str], suffix: str = "") -> None:
        for name, arguments in re.findall(
            r"__device__ int zerohop_(\w+?)(?:_##name)?\((.*?)\) {", text, re.DOTALL
        ):
            types = [each.split()[0] for each in arguments.split(",")]
            found[name + suffix] = [known[each] for each in types]

    read(plain, NUMBA_OF)
    element, word = of_types.split("#define ZEROHOP_WORD")
    word, uses = word.split("ZEROHOP_ELEMENT(", 1)
    for macro, ctype, name in re.findall(
        r"ZEROHOP_(\w+)\(([\w ]+), (\w+)\)", "ZEROHOP_ELEMENT(" + uses
    ):
        body = element if macro == "ELEMENT" else word
        read(body, NUMBA_OF | {"T": name, "Replaced<T>*": f"Tuple(int32, {name})"}, f"_{name}")
        assert ("unsigned" in ctype or ctype in ("u32", "u64")) == name.startswith("u")
    return found


def declared() -> dict[str, list[str]]:
    found: list[Any] = []
    for name, value in vars(zn).items():
        if name.startswith("_") and hasattr(value, "sig"):
            found.append(value)
        elif name.startswith("_") and isinstance(value, dict) and not name.startswith("__"):
            found += value.values()
    tuples = re.compile(r"UniTuple\((\w+) x 2\)")
    types = {each.name: [each.sig.return_type, *each.sig.args] for each in found}
    return {
        name.removeprefix("zerohop_"): [tuples.sub(r"Tuple(\1, \1)", str(each)) for each in all_of]
        for name, all_of in types.items()
    }


def test_declarations_have_the_types_of_the_functions():
    assert len(defined()) == 44
    assert declared() == defined()


def test_constants_are_those_of_the_header():
    text = (HEADERS / "types.h").read_text()
    for enum in (zn.Status, zn.Reset):
        [body] = re.findall(rf"enum class {enum.__name__} : \w+ {{(.*?)}};", text, re.DOTALL)
        pairs = re.findall(r"^\s+(\w+) = (\d+),", body, re.MULTILINE)
        assert {name.upper(): int(number) for name, number in pairs} == dict(enum.__members__)


# --- on the host ---


def test_they_are_called_by_kernels_alone():
    with pytest.raises(TypeError, match="are for kernels"):
        zn.fetch_add(1, 2, 3)


ABSENT = "import sys; sys.modules['numba.cuda'] = None; import zerohop.numba"
TOO_OLD = """
import sys, numba, numpy

class Finder:
    def find_spec(self, name, *_):
        if name == "numba.cuda":
            raise AttributeError("module 'numpy' has no attribute 'row_stack'")

sys.meta_path.insert(0, Finder())
sys.modules.pop("numba.cuda", None)
import zerohop.numba
"""


@pytest.mark.parametrize(("code", "why"), [(ABSENT, "numba.cuda"), (TOO_OLD, "row_stack")])
def test_without_a_numba_that_works_the_package_to_install_is_named(code, why):
    done = run_python("-c", code)
    assert done.returncode == 1
    assert "ImportError: Numba kernels need numba-cuda" in done.stderr
    assert why in done.stderr.splitlines()[-1]
    assert done.stderr.endswith("pip install 'numba-cuda[cu13]'\n")
