"""The allocators of the frameworks, each in its own process: they are chosen when it starts."""

import json
import os

import pytest
from support.program import run_python

PLAIN = "cudaMalloc memory"
VMM = "virtual memory (cuMemCreate)"
POOL = "memory of a stream-ordered pool (cudaMallocAsync)"

TORCH = """
import torch
array = torch.zeros(100 << 20, dtype=torch.uint8, device="cuda:0")
nbytes = array.nbytes
"""
JAX = """
import jax.numpy
array = jax.numpy.zeros(1 << 20, dtype="float32")
array.block_until_ready()
nbytes = array.nbytes
"""
REPORT = """
import json, os
from zerohop import _core
memory = _core.gpu_memory(array)
memory["dmabuf"] = 0
if memory["gpudirect_capable"]:
    fd, offset = _core.gpu_export_dmabuf(array)
    memory["dmabuf"] = os.lseek(fd, 0, os.SEEK_END)
    os.close(fd)
memory["nbytes"] = nbytes
print(json.dumps(memory))
"""


@pytest.mark.parametrize(
    ("program", "variable", "value", "kind"),
    [
        (TORCH, "PYTORCH_CUDA_ALLOC_CONF", "", PLAIN),
        (TORCH, "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", VMM),
        (TORCH, "PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync", POOL),
        (JAX, "XLA_PYTHON_CLIENT_PREALLOCATE", "false", None),
    ],
    ids=["torch", "torch-expandable", "torch-async", "jax"],
)
def test_an_allocator(program, variable, value, kind, rows):
    code = program + REPORT
    result = run_python("-c", code, env={**os.environ, variable: value}, seconds=100)
    assert result.returncode == 0, result.stderr
    memory = json.loads(result.stdout.splitlines()[-1])
    rows.add(
        f"allocator {variable}={value}",
        kind=memory["kind"],
        chunks=len(memory["chunks"]),
        gpudirect_capable=memory["gpudirect_capable"],
    )
    assert kind in (None, memory["kind"])
    assert memory["gpudirect_capable"] == (memory["kind"] != POOL)
    if memory["gpudirect_capable"]:
        assert memory["dmabuf"] >= memory["nbytes"]
    if "expandable" in value:
        assert len(memory["chunks"]) > 1
