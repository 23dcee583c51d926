// The team that makes a call: one thread, the 32 of a warp, or all of a block (of one dimension or
// more). All threads of a team make the call with the same arguments, and get the same result.
// by_first() runs a function in the first thread when all have come, and returns its result in all.
#pragma once

#include "zerohop/integers.h"

namespace zerohop::device {

struct Thread {
  static __device__ u32 rank() { return 0; }
  static __device__ u32 size() { return 1; }
  static __device__ void sync() {}
  template <typename Function>
  static __device__ auto by_first(Function function) {
    return function();
  }
  static __device__ u32 all_xor(u32 value) { return value; }
};

struct Warp {
  static __device__ u32 rank() {
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
  }
  static __device__ u32 size() { return 32; }
  static __device__ void sync() { __syncwarp(); }
  // The result of the function: whole words.
  template <typename Function>
  static __device__ auto by_first(Function function) {
    __syncwarp();
    decltype(function()) value;
    if (rank() == 0) value = function();
    u32 words[sizeof value / sizeof(u32)];
    memcpy(words, &value, sizeof value);
    __syncwarp();  // a shuffle does not order memory
    for (u32& word : words) word = __shfl_sync(0xffffffffu, word, 0);
    memcpy(&value, words, sizeof value);
    return value;
  }
  // Over all threads of the team.
  static __device__ u32 all_xor(u32 value) {
    for (u32 apart = 16; apart != 0; apart /= 2)
      value ^= __shfl_xor_sync(0xffffffffu, value, apart);
    return value;
  }
};

struct Block {
  static __device__ u32 rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  }
  static __device__ u32 size() { return blockDim.x * blockDim.y * blockDim.z; }
  static __device__ void sync() { __syncthreads(); }
  template <typename Function>
  static __device__ auto by_first(Function function) {
    using T = decltype(function());
    __shared__ alignas(T) unsigned char first[sizeof(T)];  // shared memory has no constructors
    T value;
    __syncthreads();  // the result of the last call has been read
    if (rank() == 0) {
      value = function();
      memcpy(first, &value, sizeof value);
    }
    __syncthreads();
    memcpy(&value, first, sizeof value);
    return value;
  }
  static __device__ u32 all_xor(u32 value) {
    __shared__ u32 all;
    if (rank() == 0) all = 0;
    __syncthreads();
    atomicXor(&all, value);
    __syncthreads();
    value = all;
    __syncthreads();
    return value;
  }
};

}  // namespace zerohop::device
