"""The imports from PyTorch."""

from __future__ import annotations

from importlib import import_module
from typing import Any

try:
    torch: Any = import_module("torch")
    dist: Any = import_module("torch.distributed")
except ImportError as error:
    raise ImportError(f"the backend of torch.distributed needs PyTorch ({error})") from error
if torch.__version__ < (2, 11):
    raise ImportError(
        f"the backend of torch.distributed needs PyTorch 2.11 (tested with 2.11 to 2.15), and this is {torch.__version__}: "
        "install a newer one"
    )
if not dist.is_available():
    raise ImportError("this PyTorch is built without torch.distributed")
c10d: Any = import_module(
    "torch._C._distributed_c10d"
)  # has all names, even those torch.distributed lacks
