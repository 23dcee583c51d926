// Steps of the heat equation on a strip of rows: by kernels that are launched for each (edges,
// between), and by one that does all steps and exchanges halos by itself (run).
//
// A grid is given by the address of the first cell of its row 0, which is the frame above; rows 1
// to `rows` are the strip's, and left and right of each lies a cell of frame.
#include <blocks.cuh>

using namespace zerohop::device;
using zerohop::examples::end;
using zerohop::examples::Ending;
using zerohop::examples::kOutOfStep;
using zerohop::examples::meet;

constexpr u32 kTileRows = 8;  // that a thread steps, all its loads under way at once

// In the order of zerohop.demo.heat, with each operation rounded by itself, never fused: so the
// bits are those of NumPy. CuPy has denormal numbers flushed to zero, but there are none: what
// flows in from neighbours is some 2**-24 at least.
__device__ inline float cell(float above, float below, float left, float right, float old) {
  const float around = __fadd_rn(__fadd_rn(__fadd_rn(above, below), left), right);
  return __fadd_rn(__fmul_rn(old, 0.5f), __fmul_rn(around, 0.125f));
}

// The cells of one column in the rows [first, end), kRows at most.
template <u32 kRows>
__device__ inline void step_tile(const float* source, float* target, u32 pitch, u32 column,
                                 u32 first, u32 end) {
  const float* const from = source + u64{first} * pitch + column;
  float column_of[kRows + 2], left[kRows], right[kRows];
  column_of[0] = from[-static_cast<long long>(pitch)];
  column_of[1] = from[0];
#pragma unroll
  for (u32 k = 0; k < kRows; ++k) {
    if (first + k >= end) continue;
    column_of[k + 2] = from[u64{k + 1} * pitch];
    left[k] = from[static_cast<long long>(u64{k} * pitch) - 1];
    right[k] = from[u64{k} * pitch + 1];
  }
  float* const to = target + u64{first} * pitch + column;
#pragma unroll
  for (u32 k = 0; k < kRows; ++k) {
    if (first + k >= end) continue;
    to[u64{k} * pitch] = cell(column_of[k], column_of[k + 2], left[k], right[k], column_of[k + 1]);
  }
}

// --- launched for each step; blockIdx.y: which edge, or which tile of rows ---

extern "C" __global__ void __launch_bounds__(256)
    edges(const float* source, float* target, u32 pitch, u32 columns, u32 rows) {
  const u32 column = blockIdx.x * blockDim.x + threadIdx.x;
  const u32 row = blockIdx.y == 0 ? 1 : rows;
  if (column < columns) step_tile<1>(source, target, pitch, column, row, row + 1);
}

extern "C" __global__ void __launch_bounds__(256)
    between(const float* source, float* target, u32 pitch, u32 columns, u32 rows) {
  const u32 column = blockIdx.x * blockDim.x + threadIdx.x;
  const u32 first = 2 + blockIdx.y * kTileRows;
  const u32 end = first + kTileRows < rows ? first + kTileRows : rows;
  if (column < columns) step_tile<kTileRows>(source, target, pitch, column, first, end);
}

// --- one kernel for all steps ---

// As Python packs it.
struct Field {
  u64 even;  // the grid that has the state after an even step
  u64 odd;
  u32 pitch;
  u32 columns;
  u32 rows;
  u32 steps;
};
static_assert(sizeof(Field) == 32, "as Python packs it");

// A neighbour, as Python packs it: first the one above, then the one below.
struct Side {
  u64 queue;    // address of the Queue that leads there; 0: there is none
  u64 from[2];  // offsets of the edge, in grid 0 and 1
  u64 to[2];    // of the frame there
  u32 row;      // the edge
  u32 slot;     // the first of two that the neighbour notifies
  u32 slot_there;
  u32 unused;
};
static_assert(sizeof(Side) == 56, "as Python packs it");

__device__ inline const float* source_of(const Field& field, u32 step) {
  return reinterpret_cast<const float*>(step % 2 == 0 ? field.odd : field.even);
}
__device__ inline float* target_of(const Field& field, u32 step) {
  return reinterpret_cast<float*>(step % 2 == 0 ? field.even : field.odd);
}

// By a whole block: the row at an edge, and its way to the neighbour.
__device__ Status step_edge(const Field& field, const Side& side, u32 step) {
  for (u32 column = threadIdx.x; column < field.columns; column += blockDim.x) {
    step_tile<1>(source_of(field, step), target_of(field, step), field.pitch, column, side.row,
                 side.row + 1);
  }
  if (side.queue == 0) return Status::ok;
  __syncthreads();  // what all threads wrote is what each of them may send
  const Queue& queue = *reinterpret_cast<const Queue*>(side.queue);
  const u32 turn = step % 2;
  return put_notify<Block>(queue, side.to[turn], side.from[turn], field.columns * sizeof(float),
                           side.slot_there + turn, step);
}

__device__ u32 hear(const Side& side, Board board, u32 step, u64 patience) {
  if (side.queue == 0) return 0;
  u32 value = 0;
  const Status got =
      wait_notify<Block>(board, side.slot + step % 2, patience, &value, Reset::alone);
  return got == Status::ok && value != step ? kOutOfStep : static_cast<u32>(got);
}

// By `helpers` blocks, of which this is one: the rows that no neighbour needs.
__device__ void step_between(const Field& field, u32 step, u32 helper, u32 helpers) {
  const u32 across = (field.columns + blockDim.x - 1) / blockDim.x;
  const u32 down = (field.rows - 2 + kTileRows - 1) / kTileRows;
  for (u32 tile = helper; tile < across * down; tile += helpers) {
    const u32 column = tile % across * blockDim.x + threadIdx.x;
    const u32 first = 2 + tile / across * kTileRows;
    const u32 end = first + kTileRows < field.rows ? first + kTileRows : field.rows;
    if (column < field.columns) {
      step_tile<kTileRows>(source_of(field, step), target_of(field, step), field.pitch, column,
                           first, end);
    }
  }
}

// The first and the last block have an edge each and talk to the neighbour there, while the others
// step what lies between; then all meet. There are 3 blocks at least. progress: a word of the
// host's memory; it is written where nobody fences for a neighbour, who would wait for it, too.
extern "C" __global__ void __launch_bounds__(512)
    run(Field field, const Side* sides, Board board, u64 patience, u32* progress, Ending* ending) {
  const bool first = blockIdx.x == 0, last = blockIdx.x == gridDim.x - 1;
  const Side& side = sides[first ? 0 : 1];
  for (u32 step = 1; step <= field.steps; ++step) {
    u32 status = 0;
    if (first || last) {
      status = static_cast<u32>(step_edge(field, side, step));
      if (status == 0) status = hear(side, board, step, patience);
    } else {
      step_between(field, step, blockIdx.x - 1, gridDim.x - 2);
    }
    if (status != 0) return end(ending, status, step);
    if (!meet(ending, step, 2 * patience)) return;  // longer than the wait of the two at the edges
    if (blockIdx.x == 1 && threadIdx.x == 0) *static_cast<volatile u32*>(progress) = step;
  }
}
