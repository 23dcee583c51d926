// The words by which launches of this library tell that they are done, and what of.
#pragma once

#include "gpu/tail.hpp"
#include "zerohop/words.cuh"

namespace zerohop::gpu {

using namespace device;

__device__ inline void put_end(std::uint64_t word, const WaitEnd& end) {
  asm volatile(
      "{\n"
      "  .reg .b128 whole;\n"
      "  mov.b128 whole, {%1, %2};\n"
      "  st.relaxed.sys.global.b128 [%0], whole;\n"
      "}" ::"l"(word),
      "l"(end.told), "l"(end.use)
      : "memory");
}

// Of each tail: how many blocks are done. As the module is loaded: 0, and so each launch leaves it.
__device__ std::uint32_t blocks_done[kTails];

// By all threads, first: a launch that overlaps the end of the one before it (a programmatic
// dependent launch) waits here until that one is done and its writes are seen.
__device__ inline void begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// By all threads of all blocks, behind their copies, which the barrier puts before the fence of
// each block, the counter before that of the last: fences are cumulative.
__device__ inline void finish(const Tail& tail) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (gridDim.x > 1) {
    fence_gpu();
    std::uint32_t& done = blocks_done[tail.place];
    if (atomicAdd(&done, 1) != gridDim.x - 1) return;
    done = 0;  // for the next launch that has this place
  }
  if (tail.replaced != 0) put_word(tail.replaced, std::uint32_t{0});
  fence_system();
  if (tail.mirror != 0) put_word(tail.mirror, tail.note);
  if (tail.slot != 0) put_word(tail.slot, tail.note);
  put_word(tail.done, tail.number);
}

}  // namespace zerohop::gpu
