// Words between GPUs and CPUs. Who acquires one sees what was placed before the fence that its
// writer has made ahead of it, whoever of the system placed it (PTX ISA, memory consistency model,
// scope .sys). The writes themselves order nothing: one fence serves several of them.
#pragma once

#include "gpu/tail.hpp"

namespace zerohop::gpu {

__device__ inline void put(std::uint64_t word, std::uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ inline void put(std::uint64_t word, Note note) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(note) : "memory");
}
__device__ inline void put(std::uint64_t word, const WaitEnd& end) {
  asm volatile(
      "{\n"
      "  .reg .b128 whole;\n"
      "  mov.b128 whole, {%1, %2};\n"
      "  st.relaxed.sys.global.b128 [%0], whole;\n"
      "}" ::"l"(word),
      "l"(end.told), "l"(end.use)
      : "memory");
}
// Cheaper than __threadfence(), which orders more than what comes before with what comes after.
__device__ inline void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
__device__ inline void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
__device__ inline std::uint32_t acquire(std::uint64_t word) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ inline Note acquire_note(std::uint64_t word) {
  Note note;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(note) : "l"(word) : "memory");
  return note;
}
// Orders nothing: to have a look.
__device__ inline std::uint32_t glance(std::uint64_t word) {
  std::uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
// Empties a word, and returns what was in it.
__device__ inline std::uint32_t take(std::uint64_t word) {
  std::uint32_t before;
  asm volatile("atom.acquire.sys.global.exch.b32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(word), "r"(0)
               : "memory");
  return before;
}
// Of what was acquired as `seen` already. An exchange that acquires by itself takes 1 us more.
__device__ inline Note take_note(std::uint64_t word, Note seen) {
  Note before;
  asm volatile("atom.relaxed.sys.global.exch.b64 %0, [%1], %2;"
               : "=l"(before)
               : "l"(word), "l"(Note{0})
               : "memory");
  if (before != seen) fence_system();  // a later one
  return before;
}
__device__ inline std::uint64_t nanoseconds_now() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
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
  if (tail.replaced != 0) put(tail.replaced, std::uint32_t{0});
  fence_system();
  if (tail.twin != 0) put(tail.twin, tail.note);
  if (tail.slot != 0) put(tail.slot, tail.note);
  put(tail.done, tail.number);
}

}  // namespace zerohop::gpu
