// All steps of the heat equation on a rank's rows in one kernel, which exchanges halos.
// Rows 0 and rows + 1 of a grid are halos, or the cold rim, and so are the first and the last cell
// of a row.
#include <zerohop/device.cuh>

using namespace zerohop::device;

constexpr u32 kTile = 8;                  // rows that a thread steps, with all its loads in flight
constexpr u64 kTenSeconds = 10000000000;  // longer than the detection of a dead peer

// Steps the cells of one column in the rows [first, end). Each product is exact, as in stencil.py,
// so the bits are those of NumPy, with or without fused operations.
__device__ inline void step_tile(const float* source, float* target, u32 pitch, u32 column,
                                 u32 first, u32 end) {
  const float* const from = source + u64{first} * pitch + column;
  float* const to = target + u64{first} * pitch + column;
  float old[kTile + 2], left[kTile], right[kTile];
  old[0] = *(from - pitch);
  old[1] = *from;
#pragma unroll
  for (u32 k = 0; k < kTile; ++k) {
    if (first + k >= end) continue;
    old[k + 2] = from[u64{k + 1} * pitch];
    left[k] = *(from + u64{k} * pitch - 1);
    right[k] = from[u64{k} * pitch + 1];
  }
#pragma unroll
  for (u32 k = 0; k < kTile; ++k) {
    const float around = old[k] + old[k + 2] + left[k] + right[k];
    if (first + k < end) to[u64{k} * pitch] = old[k + 1] * 0.5f + around * 0.125f;
  }
}

// Steps the tiles `tile`, `tile` + `stride`, ... of the rows [first, end).
__device__ void step_rows(const float* source, float* target, u32 pitch, u32 first, u32 end,
                          u32 tile, u32 stride) {
  const u32 across = (pitch - 2 + blockDim.x - 1) / blockDim.x;
  const u32 down = (end - first + kTile - 1) / kTile;
  for (; tile < across * down; tile += stride) {
    const u32 column = 1 + tile % across * blockDim.x + threadIdx.x;
    const u32 top = first + tile / across * kTile;
    const u32 bottom = top + kTile < end ? top + kTile : end;
    if (column < pitch - 1) step_tile(source, target, pitch, column, top, bottom);
  }
}

struct Ending {  // zeroed by the host before each launch
  u32 status;    // of the first failed block; 0: none
  u32 step;
  u32 arrived;  // arrivals at all barriers of the blocks, modulo 2**32
};

__device__ inline u32 look(const u32* word) { return *static_cast<const volatile u32*>(word); }

// Returns true when all blocks have come to barrier number `step`.
__device__ bool meet(Ending* ending, u32 step, Status status) {
  return Block::by_first([&] {
    fence_gpu();  // blocks that see the count see the writes of this block
    atomicAdd(&ending->arrived, 1u);
    const u64 began = nanoseconds_now();
    const auto met = [&] {
      return static_cast<int>(look(&ending->arrived) - step * gridDim.x) >= 0;
    };
    for (u32 turn = 1; status == Status::ok && !met(); ++turn) {
      if (turn % 32 != 0) continue;  // the clock is slow
      if (look(&ending->status) != 0) return false;
      if (nanoseconds_now() - began > 2 * kTenSeconds) status = Status::timed_out;
    }
    const u32 failed = static_cast<u32>(status);
    if (failed != 0 && atomicCAS(&ending->status, 0u, failed) == 0) ending->step = step;
    fence_gpu();  // and this block sees theirs
    return failed == 0;
  });
}

// Called by a whole block: sends its row, and waits for the neighbour's. Both have
// their grids at the same offsets. slots: two from above, two from below, for even and odd steps.
__device__ Status exchange(const Queue& queue, Board board, u32 slots, bool up, u32 pitch, u32 rows,
                           u32 step) {
  const u32 turn = step % 2;
  const u64 grid = turn * (rows + 2), line = pitch * sizeof(float);
  const u64 from = (grid + (up ? 1 : rows)) * line, to = (grid + (up ? rows + 1 : 0)) * line;
  __syncthreads();  // each thread may send what all threads wrote
  const u32 there = slots + turn + (up ? 2 : 0), here = slots + turn + (up ? 0 : 2);
  const Status sent = put_notify<Block>(queue, to, from, line, there, step);
  if (sent != Status::ok) return sent;
  return wait_notify<Block>(board, here, kTenSeconds, nullptr, Reset::alone);
}

// The first and the last block step the row at one edge each and exchange it, while the others step
// the rows between; then all meet at a barrier. There are at least 3 blocks, and all of them run at
// once. queues: to the rank above and to the one below, or null.
extern "C" __global__ void __launch_bounds__(512)
    run(float* even, float* odd, u32 pitch, u32 rows, u32 steps, u32 slots,
        const Queue* const* queues, Board board, Ending* ending) {
  const bool up = blockIdx.x == 0, edge = up || blockIdx.x == gridDim.x - 1;
  const Queue* const queue = queues[up ? 0 : 1];
  const u32 row = up ? 1 : rows;
  for (u32 step = 1; step <= steps; ++step) {
    const float* const source = step % 2 == 0 ? odd : even;
    float* const target = step % 2 == 0 ? even : odd;
    Status status = Status::ok;
    if (edge) {
      step_rows(source, target, pitch, row, row + 1, 0, 1);
      if (queue != nullptr) status = exchange(*queue, board, slots, up, pitch, rows, step);
    } else {
      step_rows(source, target, pitch, 2, rows, blockIdx.x - 1, gridDim.x - 2);
    }
    if (!meet(ending, step, status)) return;
  }
}
