"""Which PyTorch the backend of torch.distributed takes."""

import subprocess
import sys

import pytest

PROGRAM = """
import torch
torch.__version__ = torch.torch_version.TorchVersion("{}")
import zerohop.torch
"""


@pytest.mark.parametrize(("version", "taken"), [("2.10.0+cpu", False), ("2.11.0", True)])
def test_an_older_one_is_refused(version, taken):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(version)], capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == taken, done.stderr
    refusal = f"needs PyTorch 2.11 (tested with 2.11 to 2.15), and this is {version}"
    assert (refusal in done.stderr) != taken
