// What kernels take from CUDA, for kernels that run on CPU threads.
#pragma once

#include <atomic>
#include <barrier>
#include <cstring>

#define __device__
#define __global__
#define __noinline__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)

struct uint4 {
  alignas(16) unsigned x;
  unsigned y, z, w;
};
struct Dimensions {
  unsigned x = 1;
};

// One block of threads.
struct ThreadBlock {
  explicit ThreadBlock(unsigned threads) : barrier(threads), votes(threads) {}

  std::barrier<> barrier;
  std::atomic<bool> all{true};
  std::barrier<> votes;
};

inline thread_local Dimensions threadIdx, blockIdx, blockDim, gridDim;
inline thread_local ThreadBlock* this_block = nullptr;

inline void __syncthreads() { this_block->barrier.arrive_and_wait(); }
inline int __syncthreads_and(int vote) {
  if (vote == 0) this_block->all = false;
  __syncthreads();
  const bool all = this_block->all;
  this_block->votes.arrive_and_wait();  // all have read it
  if (threadIdx.x == 0) this_block->all = true;
  __syncthreads();
  return all ? 1 : 0;
}
inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline unsigned atomicAdd(unsigned* at, unsigned more) {
  return std::atomic_ref(*at).fetch_add(more);
}
inline unsigned atomicCAS(unsigned* at, unsigned expected, unsigned desired) {
  std::atomic_ref(*at).compare_exchange_strong(expected, desired);
  return expected;
}
