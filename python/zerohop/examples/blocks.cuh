// What the persistent kernels of the examples share: how a block says why it ends, and where all
// blocks of a grid meet. The grid is no larger than what the GPU runs at once.
#pragma once

#include <zerohop/device.cuh>

namespace zerohop::examples {

using device::Block;
using device::Status;
using device::u32;
using device::u64;

constexpr u32 kOutOfStep = 100;  // beside those of Status: a notification of another round
constexpr u32 kLooks = 32;       // at the count of those who have come, for each at the clock

// Zeroed by the host before each launch.
struct Ending {
  u32 status;  // of the first block that fails; 0: none has
  u32 block;
  u32 round;
  u32 arrived;  // at all meetings so far, modulo 2**32
};

__device__ inline u32 look(const u32* word) { return *static_cast<const volatile u32*>(word); }

// By all threads of the block, which then returns.
__device__ inline void end(Ending* ending, u32 status, u32 round) {
  if (Block::rank() != 0 || atomicCAS(&ending->status, 0u, status) != 0) return;
  ending->block = blockIdx.x;
  ending->round = round;
}
__device__ inline void end(Ending* ending, Status status, u32 round) {
  end(ending, static_cast<u32>(status), round);
}

// By one thread, behind its block's barrier.
__device__ inline bool await_all(Ending* ending, u32 all, u64 nanoseconds) {
  device::fence_gpu();  // what the block wrote is seen by those who see it counted
  atomicAdd(&ending->arrived, 1u);
  const u64 began = device::nanoseconds_now();
  for (u32 turn = 1; static_cast<int>(look(&ending->arrived) - all) < 0; ++turn) {
    if (turn % kLooks != 0) continue;
    if (look(&ending->status) != 0) return false;
    if (device::nanoseconds_now() - began < nanoseconds) continue;
    return false;
  }
  device::fence_gpu();  // and the other way round
  return true;
}

// Returns true to all threads when all blocks have come to their `meeting`-th one, from 1. False: a
// block has ended, or did not come in time; then this one ends, too.
__device__ inline bool meet(Ending* ending, u32 meeting, u64 nanoseconds) {
  const bool met =
      Block::by_first([&] { return await_all(ending, meeting * gridDim.x, nanoseconds); });
  if (!met) end(ending, Status::timed_out, meeting);  // unless another one was the first
  return met;
}

}  // namespace zerohop::examples
