"""The functions of <zerohop/numba.cuh>, declared to Numba, which compiles and links them with the calling kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from zerohop._endpoint.headers import include_dir

try:
    _cuda: Any = import_module("numba.cuda")
    _extending: Any = import_module("numba.cuda.extending")
except (ImportError, AttributeError) as error:  # old versions use names that NumPy has removed
    raise ImportError(
        f"Numba kernels need numba-cuda ({error}): pip install 'numba-cuda[cu13]'"
    ) from error

Function = TypeVar("Function", bound=Callable[..., Any])

BEGUN = "Tuple((int32, uint32))"  # status, ticket


def _source() -> str:
    """numba.cuh with all its includes inlined: Numba compiles one text, without include folders."""
    seen = {"zerohop/numba.cuh"}

    def text_of(name: str) -> str:
        text = (Path(include_dir()) / name).read_text().replace("#pragma once\n", "")
        return re.sub(r'^#include "(.+)"$', included, text, flags=re.MULTILINE)

    def included(line: re.Match[str]) -> str:
        name = line[1]
        if name in seen:
            return ""
        seen.add(name)
        return text_of(name)

    unused = "#pragma nv_diag_suppress 177\n"  # outside of headers the compiler warns of unused constants
    return unused + text_of("zerohop/numba.cuh")


_CODE = _cuda.CUSource(_source(), name="zerohop/numba.cuh")


def declare(name: str, says: str, arguments: str) -> Any:
    """Declares a function of numba.cuh, with Numba's types."""
    return _cuda.declare_device(f"zerohop_{name}", f"{says}({arguments})", link=_CODE)


def of_types(types: str, name: str, says: str, arguments: str) -> dict[str, Any]:
    """One function for each type, which replaces {0} in the signature."""
    return {
        each: declare(f"{name}_{each}", says.format(each), arguments.format(each))
        for each in types.split()
    }


def in_kernels(function: Function) -> Function:
    """Compiled into the kernels that call it; only kernels may call it."""
    called: Function = _extending.register_jitable(function)
    return called


def by_type(function: Function) -> Callable[[Function], Function]:
    """For a function that gets the argument types of a call in a kernel, and returns its implementation."""
    # Not strict: the returned lambdas have the same parameter names, but no annotations.
    chooses: Callable[[Function], Function] = _extending.overload(function, strict=False)
    return chooses
