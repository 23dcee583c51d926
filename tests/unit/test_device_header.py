"""The header for kernels compiles by itself, for every generation of GPUs that the compiler knows best."""

import re
import sys
from pathlib import Path

import pytest
import zerohop as zh
from support.nvcc import compiles
from zerohop.bench.gda import kernels as bench_kernels

sys.path.append(str(Path(__file__).parents[1] / "gpu"))
from device_kernels import SOURCE

CALLS = """
#include <zerohop/device.cuh>
using namespace zerohop::device;

template <typename Team>
__device__ int all(Queue queue, Board board, u32* out) {
  u64 old = 0;
  Ticket ticket;
  Status last = put<Team>(queue, 0, 0, 8, &ticket);
  last = wait<Team>(queue, ticket, 1000);
  last = get<Team>(queue, 0, 0, 8);
  last = notify<Team>(queue, 1, 2);
  last = put_notify<Team>(queue, 0, 0, 8, 1, 2);
  last = flush<Team>(queue);
  last = put_notify_checked<Team>(queue, 0, 0, 8, 1);
  last = wait_notify_checked<Team>(board, 3, out, 8, 1000);
  last = wait_notify<Team>(board, 3, 1000, out);
  last = wait_notify_any<Team>(board, 3, 4, 1000, out, out + 1, Reset::alone);
  last = put_value(queue, 8, 1.0);
  last = fetch_add(queue, 8, u64{1}, &old);
  last = put_value(queue, 8, float2{1, 2});
  last = fetch_add(queue, 8, 1ull);
  last = fetch_add(queue, 8, -1);
  last = compare_swap(queue, 8, u32{1}, u32{2});
  return static_cast<int>(last) + peek_notify(board, 3) + reset_notify(board, 3);
}
extern "C" __global__ void use(Queue queue, Board board, u32* out) {
  out[2] = all<Thread>(queue, board, out) + all<Warp>(queue, board, out) + all<Block>(queue, board, out);
}
"""


@pytest.mark.parametrize(
    ("source", "architecture"),
    [
        (CALLS, "sm_80"),
        (CALLS, "sm_90"),
        (SOURCE, "sm_90"),
        (bench_kernels.SOURCE.read_text(), "sm_80"),
    ],
    ids=["calls, sm_80", "calls, sm_90", "kernels of the GPU tests", "kernels of the benchmark"],
)
def test_it_compiles(tmp_path, source, architecture):
    file = tmp_path / "use.cu"
    file.write_text(source)
    compiles(file, architecture, tmp_path)


def test_the_calls_for_numba_compile(tmp_path):
    file = tmp_path / "calls.cu"
    file.write_text("#include <zerohop/numba.cuh>")
    compiles(file, "sm_90", tmp_path, "-rdc=true")


def test_options_tell_headers_apart(tmp_path):
    assert zh.compile_options() == zh.compile_options()
    standard, ours, digest = zh.compile_options()
    assert (standard, ours) == ("-std=c++17", f"-I{zh.include_dir()}")
    assert re.fullmatch(r"-DZEROHOP_HEADERS=0x[0-9a-f]{16}", digest)
    seen = {digest}
    for text in ("int a;", "int b;"):
        header = tmp_path / "parts" / "mine.cuh"
        header.parent.mkdir(exist_ok=True)
        header.write_text(text)
        *rest, digest = zh.compile_options(tmp_path)
        assert rest == [standard, ours, f"-I{tmp_path}"]
        seen.add(digest)
    (tmp_path / "notes.txt").write_text("no header")
    assert zh.compile_options(tmp_path)[-1] == digest
    assert len(seen) == 3


def test_the_values_are_as_large_as_the_header_says():
    text = (Path(zh.include_dir()) / "zerohop/types.h").read_text()
    from zerohop import _core

    assert f"sizeof(Queue) == {_core.DEVICE_QUEUE_NBYTES}" in text
    assert f"sizeof(Board) == {_core.DEVICE_BOARD_NBYTES}" in text
