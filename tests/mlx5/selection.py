"""Which cases of the contract run on mlx5sim0: those that run on Soft-RoCE, and those of several rails.

The quick ones are for CI, which has a minute for them; ZEROHOP_TEST_MLX5=full runs all.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from vm import selection as soft_roce

DEVICE = "mlx5sim0"
RAILS = "mlx5sim0,mlx5sim1"
MORE = ("test_rails.py",)  # of soft0 elsewhere, because a guest has one device
QUICK = ("test_atomics.py", "test_notifications.py", "test_rails.py", "test_verbs_operations.py")
ENVIRONMENT = {
    "ZEROHOP_TEST_DEVICES": DEVICE,
    "ZEROHOP_TEST_RAILS": RAILS,
    "ZEROHOP_TEST_KINDS": "numpy",
    "ZEROHOP_TEST_PARTNERS": "process",
}


@dataclass(frozen=True)
class Selection:
    """files, relative to the repository; options: for pytest; seconds: at most."""

    files: list[Path]
    options: list[str]
    seconds: float


def is_full() -> bool:
    return os.environ.get("ZEROHOP_TEST_MLX5") == "full"


def chosen() -> Selection:
    left_out = {each for names in soft_roce.LEFT_OUT.values() for each in names} - set(MORE)
    names = soft_roce.contract_files()
    if not is_full():
        names = [name for name in names if name in QUICK]
    files = [soft_roce.CONTRACT / name for name in names if name not in left_out]
    options = [
        f"--deselect={soft_roce.CONTRACT / each.replace('rxe0', DEVICE)}"
        for each in sorted(left_out)
        if "::" in each
    ]
    return Selection(files, options, 1500.0)
