// Products of 32x32 matrices and vectors, by a kernel that is launched for each batch (multiply),
// and by two kernels that communicate: on rank 0 (request), and on rank 1 (serve).
//
// A batch is split into pieces, one per block; the same block has it on both ranks, with its own
// two slots. So all pieces are in flight side by side, and no block waits for another one here.
#include <zerohop/device.cuh>

using namespace zerohop::device;

constexpr u32 kSide = 32;  // rows of a matrix: one lane of a warp each
constexpr u64 kVector = kSide * sizeof(float);
constexpr u32 kSets = 3;  // of vectors on rank 0, then all products; as in matvec.py
constexpr u64 kTenSeconds = 10000000000;  // longer than the detection of a dead peer

// Zeroed by the host before each launch.
struct Ending {
  u32 status;  // of the first failed block; 0: none
  u32 number;  // number of the batch
};

__device__ void end(Ending* ending, Status status, u32 number) {
  if (threadIdx.x != 0 || atomicCAS(&ending->status, 0u, static_cast<u32>(status)) != 0) return;
  ending->number = number;
}

// The vectors of a block.
struct Piece {
  u64 first;
  u64 count;
  u64 batch;  // bytes of all vectors, or of all their products
  u32 slot;
};

__device__ Piece piece_of(u32 vectors, u32 slots) {
  const u64 first = u64{vectors} * blockIdx.x / gridDim.x;
  const u64 next = u64{vectors} * (blockIdx.x + 1) / gridDim.x;
  return {first, next - first, vectors * kVector, slots + 2 * blockIdx.x};
}

// Called by a warp: multiplies a matrix, stored column by column, by the vector of which each lane
// has an element. The order of the sum does not matter: all terms and sums are exact, see
// matvec.py.
__device__ inline float product(const float* matrix, float element) {
  const u32 lane = Warp::rank();
  float even = 0, odd = 0;
#pragma unroll
  for (u32 column = 0; column < kSide; column += 2) {
    even += matrix[column * kSide + lane] * __shfl_sync(0xffffffffu, element, column);
    odd += matrix[(column + 1) * kSide + lane] * __shfl_sync(0xffffffffu, element, column + 1);
  }
  return even + odd;
}

// Called by a block, one warp per vector. Vectors are not read through the L1 cache, because
// another GPU writes them.
__device__ void multiply(const float* matrices, const float* vectors, float* products, u64 count) {
  for (u64 i = threadIdx.x / kSide; i < count; i += blockDim.x / kSide) {
    const u64 place = i * kSide + Warp::rank();
    products[place] = product(matrices + i * kSide * kSide, __ldcg(vectors + place));
  }
}

extern "C" __global__ void __launch_bounds__(512, 2)
    serve(const float* matrices, u32 vectors, u32 slots, u32 rounds, Queue queue, Board board,
          Ending* ending) {
  const Piece piece = piece_of(vectors, slots);
  const u64 offset = piece.first * kVector;
  for (u32 number = 0; number < rounds; ++number) {
    const u32 turn = number % 2, slot = piece.slot + turn;
    const u64 here = turn * piece.batch + offset, answer = here + 2 * piece.batch;
    Status status = wait_notify<Block>(board, slot, kTenSeconds, nullptr, Reset::alone);
    if (status != Status::ok) return end(ending, status, number);
    multiply(matrices + piece.first * kSide * kSide,
             reinterpret_cast<const float*>(queue.local + here),
             reinterpret_cast<float*>(queue.local + answer), piece.count);
    __syncthreads();  // each thread may send what all threads wrote
    const u64 there = (kSets + number) * piece.batch + offset;
    status = put_notify<Block>(queue, there, answer, piece.count * kVector, slot, 1);
    if (status != Status::ok) return end(ending, status, number);
  }
}

// Two batches are in flight: one is sent when the one two before it has been answered.
extern "C" __global__ void __launch_bounds__(512, 2)
    request(const float*, u32 vectors, u32 slots, u32 rounds, Queue queue, Board board,
            Ending* ending) {
  const Piece piece = piece_of(vectors, slots);
  const u64 offset = piece.first * kVector;
  for (u32 number = 0; number < rounds + 2; ++number) {
    const u32 turn = number % 2, slot = piece.slot + turn;
    Status status = Status::ok;
    if (number >= 2) status = wait_notify<Block>(board, slot, kTenSeconds, nullptr, Reset::alone);
    if (status == Status::ok && number < rounds) {
      const u64 from = number % kSets * piece.batch + offset, to = turn * piece.batch + offset;
      status = put_notify<Block>(queue, to, from, piece.count * kVector, slot, 1);
    }
    if (status != Status::ok) return end(ending, status, number);
  }
}
