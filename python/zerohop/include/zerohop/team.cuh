// Who does a call together: one thread, the 32 of a warp, all of a block (of one dimension or
// more). All threads of a team make the call with the same arguments, and get the same answer.
#pragma once

#include "zerohop/integers.h"

namespace zerohop::device {

struct Thread {
  static __device__ u32 rank() { return 0; }
  static __device__ u32 size() { return 1; }
  static __device__ void sync() {}
  template <typename T>
  static __device__ T from_first(T value) {
    return value;
  }
};

struct Warp {
  static __device__ u32 rank() {
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
  }
  static __device__ u32 size() { return 32; }
  static __device__ void sync() { __syncwarp(); }
  template <typename T>
  static __device__ T from_first(T value) {
    __syncwarp();  // a shuffle orders no memory
    return __shfl_sync(0xffffffffu, value, 0);
  }
};

struct Block {
  static __device__ u32 rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  }
  static __device__ u32 size() { return blockDim.x * blockDim.y * blockDim.z; }
  static __device__ void sync() { __syncthreads(); }
  template <typename T>
  static __device__ T from_first(T value) {
    __shared__ T first;
    if (rank() == 0) first = value;
    __syncthreads();
    value = first;
    __syncthreads();  // before the next call writes it
    return value;
  }
};

}  // namespace zerohop::device
