"""Calls into which torch.compile does not look."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from zerohop.torch.foreign import torch

eval_frame: Any = import_module("torch._C._dynamo.eval_frame")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def untraced(function: _Function) -> _Function:
    """The function itself. Neither it nor what it calls is compiled, though PyTorch calls it while a compiled model runs.

    As torch.compiler.disable(), without a wrapper and without the second that the import of torch._dynamo takes, if this PyTorch has
    what that needs.
    """
    if not hasattr(eval_frame, "set_code_exec_strategy"):
        disabled: _Function = torch.compiler.disable(function)
        return disabled
    skip = eval_frame._FrameAction.SKIP
    eval_frame.set_code_exec_strategy(function.__code__, eval_frame._FrameExecStrategy(skip, skip))
    return function
