"""What docs/kernels.md shows of kernels without CuPy: compiled by NVRTC, launched by cuda.core."""

import cuda.core
import numpy as np
import pytest
import torch
import zerohop as zh
from device_kernels import OK, THREAD
from far_side import THEIRS
from support.pages import snippet
from test_device_queue import NBYTES, PATIENCE, both_ends


@pytest.fixture(params=["mapped", "proxy"])
def ends(request):
    with both_ends(THEIRS[-1], way=request.param) as ends:
        yield ends


def test_the_example_of_cuda_core(ends):
    example = snippet("docs/kernels.md", "ProgramOptions(")
    ours = np.random.default_rng(8).integers(0, 256, NBYTES, np.uint8)
    ends.array.copy_(torch.from_numpy(ours))
    torch.cuda.synchronize()
    gpu = cuda.core.Device(0)
    gpu.set_current()
    stream = gpu.create_stream()
    names = {**vars(cuda.core), "zh": zh, "gpu": gpu, "stream": stream}
    ends.far.begin(
        f"kernels.wait_any(1, 1, board.value, i32({THREAD}), u32(7), u32(1), u64({PATIENCE}), i32(1), status);"
        "peer.notify(7, 1).wait();"
        "answer = (fetch(status).tolist()[:3], array.cpu().numpy())"
    )
    exec(example, names | {"queue": ends.queue, "board": ends.board, "mine": ends.memory})  # noqa: S102
    stream.sync()
    found, there = ends.far.finish()
    assert found == [OK, 7, 1]
    assert (there == ours).all()
