"""The imports from PyTorch."""

from __future__ import annotations

from importlib import import_module
from typing import Any

try:
    torch: Any = import_module("torch")
    dist: Any = import_module("torch.distributed")
except ImportError as error:
    raise ImportError(f"the backend of torch.distributed needs PyTorch ({error})") from error
if not dist.is_available():
    raise ImportError("this PyTorch is built without torch.distributed")
c10d: Any = import_module(
    "torch._C._distributed_c10d"
)  # has all names, even those torch.distributed lacks
