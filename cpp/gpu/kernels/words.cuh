// Words between GPUs and CPUs. Who acquires one sees what was placed before the fence that its
// writer has made ahead of it, whoever of the system placed it (PTX ISA, memory consistency model,
// scope .sys). The writes themselves order nothing: one fence serves several of them.
#pragma once

#include "gpu/tail.hpp"

namespace zerohop::gpu {

__device__ inline void put(std::uint64_t word, std::uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ inline void put(std::uint64_t word, std::uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ inline std::uint32_t acquire(std::uint64_t word) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ inline std::uint32_t exchange(std::uint64_t word, std::uint32_t value) {
  std::uint32_t before;
  asm volatile("atom.acquire.sys.global.exch.b32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(word), "r"(value)
               : "memory");
  return before;
}
__device__ inline std::uint64_t nanoseconds_now() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Of each tail: how many blocks are done. As the module is loaded: 0, and so each launch leaves it.
__device__ std::uint32_t blocks_done[kTails];

// By all threads of all blocks, behind their copies.
__device__ inline void finish(const Tail& tail) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();  // this block's copies, which the barrier has put before it
  if (gridDim.x > 1) {
    std::uint32_t& done = blocks_done[tail.place];
    if (atomicAdd(&done, 1) != gridDim.x - 1) return;
    done = 0;                // for the next launch that has this place
    __threadfence_system();  // the other blocks' copies, which the counter has put before it
  }
  if (tail.slot != 0) put(tail.slot, tail.value);
  put(tail.done, tail.number);
}

}  // namespace zerohop::gpu
