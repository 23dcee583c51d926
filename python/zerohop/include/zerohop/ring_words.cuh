// The words of a ring as GPU threads access them: the ring's state in the memory of that GPU, the
// words that the adapter or the host reads and writes in GPU or host memory.
#pragma once

#include "zerohop/mlx5.h"
#include "zerohop/send_ring.h"
#include "zerohop/words.cuh"

namespace zerohop::device {

struct GpuWords {
  static __device__ u32 load(u64 at) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
  }
  static __device__ RingCounts counts(u64 at) {
    RingCounts seen;
    asm volatile("ld.acquire.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(seen.reserved), "=r"(seen.ready), "=r"(seen.done), "=r"(seen.failed)
                 : "l"(at)
                 : "memory");
    return seen;
  }
  static __device__ void store(u64 at, u32 value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
  }
  static __device__ bool swap(u64 at, u32 expected, u32 desired) {
    u32 before;
    asm volatile("atom.acquire.gpu.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "l"(at), "r"(expected), "r"(desired)
                 : "memory");
    return before == expected;
  }
  static __device__ u64 arrival(u64 at) { return acquire_note(at); }
  // Ordered by the fence in record().
  static __device__ void block(u64 at, const mlx5::Block& block) {
#pragma unroll
    for (u32 i = 0; i < mlx5::kBlockBytes / 16; ++i) {
      const u32* const words = block.words + 4 * i;
      asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at + 16 * i),
                   "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                   : "memory");
    }
  }
  static __device__ void record(u64 at, u32 value) {
    fence_system();
    put_word(at, value);
  }
  static __device__ void ring(u64 at, u64 value) {
    fence_system();
    put_word(at, Note{value});
  }
  static __device__ u64 nanoseconds() { return nanoseconds_now(); }
  static __device__ void relax() { __nanosleep(20); }
};

}  // namespace zerohop::device
