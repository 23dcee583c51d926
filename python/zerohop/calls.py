"""The error message for a call whose arguments do not fit a function of the core."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from inspect import Parameter, Signature
from typing import Any, NamedTuple

__all__ = ["explain", "parse"]

# pybind11's names of argument types, and the usual names.
_PLAIN = {
    "typing.SupportsInt | typing.SupportsIndex": "int",
    "typing.SupportsFloat | typing.SupportsIndex": "float",
    "zerohop._core.": "",
    "collections.abc.": "",
    "typing.": "",
}


def explain(refusal: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """A sentence in place of pybind11's message, which shows all arguments, even long and secret ones.

    refusal: pybind11's message. positional: for a method the object is the first.
    """
    name, _, rest = refusal.partition("(")
    if name == "__init__":  # its signature is shown as the class's
        name, positional = type(positional[0]).__name__, positional[1:]
    taken, _, _ = rest.partition("\n\nInvoked with")
    signatures = re.findall(r"^ +\d+\. [\w.]*(\(.*\))(?: -> .*)?$", taken, re.MULTILINE)
    if not signatures:
        return f"{name}() does not take these arguments: see help({name})"
    # Of several overloads, the message for the one that fits best; on a tie the first, the usual one.
    said = [_explain_one(name, parse(one), positional, named) for one in signatures]
    return min(said, key=lambda one: one.wrong).sentence


class _Said(NamedTuple):
    wrong: int
    sentence: str


def _explain_one(
    name: str, arguments: ast.arguments, positional: tuple[Any, ...], named: Mapping[str, Any]
) -> _Said:
    try:
        given = _signature(arguments).bind(*positional, **named).arguments
    except TypeError as error:
        return _Said(99, f"{name}(): {error}; it is {name}({_shown(arguments)})")
    wrong = [
        f"{argument.arg} must be {_annotation(argument)}, not {type(given[argument.arg]).__name__}"
        for argument in (*arguments.args, *arguments.kwonlyargs)
        if argument.arg in given and not _fits(given[argument.arg], _annotation(argument))
    ]
    return _Said(len(wrong), f"{name}(): {' and '.join(wrong) or 'a value does not fit'}")


def parse(signature: str) -> ast.arguments:
    """The arguments of a signature as pybind11 writes it: "(self: object, slot: int = 3)"."""
    for theirs, ours in _PLAIN.items():
        signature = signature.replace(theirs, ours)
    [function] = ast.parse(f"def f{signature}: ...").body
    assert isinstance(function, ast.FunctionDef)
    return function.args


def _signature(arguments: ast.arguments) -> Signature:
    first_default = len(arguments.args) - len(arguments.defaults)
    parameters = [
        _parameter(argument, Parameter.POSITIONAL_OR_KEYWORD, number >= first_default)
        for number, argument in enumerate(arguments.args)
    ]
    if arguments.vararg:
        parameters.append(_parameter(arguments.vararg, Parameter.VAR_POSITIONAL, False))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        parameters.append(_parameter(argument, Parameter.KEYWORD_ONLY, default is not None))
    if arguments.kwarg:
        parameters.append(_parameter(arguments.kwarg, Parameter.VAR_KEYWORD, False))
    return Signature(parameters)


def _parameter(argument: ast.arg, kind: Any, has_default: bool) -> Parameter:
    return Parameter(argument.arg, kind, default=None if has_default else Parameter.empty)


def _shown(arguments: ast.arguments) -> str:
    """As in a call: without self and without types."""
    for argument in (*arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    return ast.unparse(arguments).removeprefix("self, ").removeprefix("self")


def _annotation(argument: ast.arg) -> str:
    return "object" if argument.annotation is None else ast.unparse(argument.annotation)


def _fits(value: object, annotation: str) -> bool:
    """Whether the type fits; elements of containers are not checked."""
    kinds = {kind.__name__ for kind in type(value).__mro__}  # object is among them
    if hasattr(value, "__index__"):
        kinds |= {"int", "float"}
    if hasattr(value, "__float__"):
        kinds.add("float")
    if value is None:
        kinds = {"None", "object"}
    return any(wanted.partition("[")[0] in kinds for wanted in annotation.split(" | "))
