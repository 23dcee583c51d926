"""The functions of <zerohop/numba.cuh>, declared to Numba, which compiles and links them with the kernels that call them."""

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
except (ImportError, AttributeError) as error:  # an older one misses what NumPy has given up
    raise ImportError(
        f"kernels of Numba need numba-cuda ({error}): pip install 'numba-cuda[cu13]'"
    ) from error

Function = TypeVar("Function", bound=Callable[..., Any])

BEGUN = "Tuple((int32, uint32))"  # status, ticket


def _source() -> str:
    """numba.cuh with all that it includes: Numba compiles one text, which knows no folders."""
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

    unused = "#pragma nv_diag_suppress 177\n"  # constants, which outside of headers are warned of
    return unused + text_of("zerohop/numba.cuh")


_CODE = _cuda.CUSource(_source(), name="zerohop/numba.cuh")


def foreign(name: str, says: str, arguments: str) -> Any:
    """Of numba.cuh, with Numba's types."""
    return _cuda.declare_device(f"zerohop_{name}", f"{says}({arguments})", link=_CODE)


def of_types(types: str, name: str, says: str, arguments: str) -> dict[str, Any]:
    """One for each type, which stands for {0} in the signature."""
    return {
        each: foreign(f"{name}_{each}", says.format(each), arguments.format(each))
        for each in types.split()
    }


def in_kernels(function: Function) -> Function:
    """Compiled for those that call it; nothing else may."""
    called: Function = _extending.register_jitable(function)
    return called


def by_type(function: Function) -> Callable[[Function], Function]:
    """Of what is given the types of the arguments of a call in a kernel, and returns how to make it."""
    # Not strict: the lambdas that are returned have the same names, but no annotations.
    chooses: Callable[[Function], Function] = _extending.overload(function, strict=False)
    return chooses
