"""Memory of a GPU on simulated adapters, by a fake libcuda; tests/gpu/test_mlx5_simulation.py is about a real one."""

import re
import sys
from pathlib import Path

from mlx5.simulation import library, simulation

INSIDE = Path(__file__).with_name("inside")


def test_it_is_registered_by_its_addresses_where_no_dmabuf_is_mapped():
    folder = library().with_name("fake_driver")
    assert (folder / "libcuda.so.1").exists(), f"there is no {folder}: make mlx5 builds it"
    with simulation() as adapters:
        printed = adapters.run(
            sys.executable, INSIDE / "gpu_memory.py", LD_LIBRARY_PATH=str(folder)
        )
    ways, route, refusal, last = printed.splitlines()
    assert ways == "peermem peermem"
    assert re.search(r"^gpudirect .*mlx5sim0", route), route
    assert "mlx5sim0 does not register GPU memory through dma-buf (Operation not" in refusal
    assert last == "all"
