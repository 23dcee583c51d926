// The words by which launches of this library report what is done.
#pragma once

#include "gpu/tail.hpp"
#include "zerohop/words.cuh"

namespace zerohop::gpu {

using namespace device;

// 16 bytes in one access.
__device__ inline void put_pair(u64 at, u64 first, u64 second) {
  asm volatile(
      "{\n"
      "  .reg .b128 whole;\n"
      "  mov.b128 whole, {%1, %2};\n"
      "  st.relaxed.sys.global.b128 [%0], whole;\n"
      "}" ::"l"(at),
      "l"(first), "l"(second)
      : "memory");
}
__device__ inline void glance_at_pair(u64 at, u64& first, u64& second) {
  asm volatile(
      "{\n"
      "  .reg .b128 whole;\n"
      "  ld.relaxed.sys.global.b128 whole, [%2];\n"
      "  mov.b128 {%0, %1}, whole;\n"
      "}"
      : "=l"(first), "=l"(second)
      : "l"(at)
      : "memory");
}

__device__ inline void acquire_pair(u64 at, u64& first, u64& second) {
  asm volatile(
      "{\n"
      "  .reg .b128 whole;\n"
      "  ld.acquire.sys.global.b128 whole, [%2];\n"
      "  mov.b128 {%0, %1}, whole;\n"
      "}"
      : "=l"(first), "=l"(second)
      : "l"(at)
      : "memory");
}

// In one access. For an assignment the compiler may issue four stores of 4 bytes, and each of them
// costs as much as one of 16.
__device__ inline void store_sixteen(u64 at, const uint4& value) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}

// Takes the value acquired as `seen`. False: another has replaced or taken it.
__device__ inline bool take_if(u64 word, Note seen) {
  Note before;
  asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(before)
               : "l"(word), "l"(seen), "l"(Note{0})
               : "memory");
  return before == seen;
}

__device__ inline void put_end(std::uint64_t word, const WaitEnd& end) {
  put_pair(word, end.outcome, end.use);
}

// For each tail, the number of finished blocks. 0 at load time, and each launch resets it to 0.
__device__ std::uint32_t blocks_done[kTails];

// Called first, by all threads. A launch that overlaps the end of the previous one (a programmatic
// dependent launch) waits here until that one is done and its writes are visible.
__device__ inline void begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Called by all threads of all blocks after their copies. The barrier orders those before each
// block's fence, and the counter orders them before the last block's: fences are cumulative.
__device__ inline void finish(const Tail& tail) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (gridDim.x > 1) {
    fence_gpu();
    std::uint32_t& done = blocks_done[tail.place];
    if (atomicAdd(&done, 1) != gridDim.x - 1) return;
    done = 0;  // for the next launch that uses this place
  }
  if (tail.replaced != 0) put_word(tail.replaced, std::uint32_t{0});
  fence_system();
  if (tail.mirror != 0) put_word(tail.mirror, tail.note);
  if (tail.slot != 0) put_word(tail.slot, tail.note);
  put_word(tail.done, tail.number);
}

}  // namespace zerohop::gpu
