// Words between GPUs and CPUs. An acquire of one sees everything placed before the fence that its
// writer made before the write, by any writer in the system (PTX ISA, memory consistency model,
// scope .sys). The writes themselves order nothing: one fence serves several of them.
#pragma once

#include "zerohop/note.h"

namespace zerohop::device {

__device__ inline void put_word(u64 word, u32 value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ inline void put_word(u64 word, Note note) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(note) : "memory");
}
// Cheaper than __threadfence(), which orders more than earlier with later accesses.
__device__ inline void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
__device__ inline void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
__device__ inline u32 acquire(u64 word) {
  u32 value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ inline Note acquire_note(u64 word) {
  Note note;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(note) : "l"(word) : "memory");
  return note;
}
// Orders nothing: for polling.
__device__ inline u32 glance(u64 word) {
  u32 value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ inline Note glance_at_note(u64 word) {
  Note note;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(note) : "l"(word) : "memory");
  return note;
}
// Empties a word, and returns its value.
__device__ inline u32 take(u64 word) {
  u32 before;
  asm volatile("atom.acquire.sys.global.exch.b32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(word), "r"(0)
               : "memory");
  return before;
}
// For a value already acquired as `seen`. An acquiring exchange takes 1 us longer.
__device__ inline Note take_note(u64 word, Note seen) {
  Note before;
  asm volatile("atom.relaxed.sys.global.exch.b64 %0, [%1], %2;"
               : "=l"(before)
               : "l"(word), "l"(Note{0})
               : "memory");
  if (before != seen) fence_system();  // a later value
  return before;
}
// Removes the value acquired as `seen`, unless a later one has replaced it. The result is not
// waited for.
__device__ inline void forget_note(u64 word, Note seen) {
  asm volatile("atom.relaxed.sys.global.cas.b64 _, [%0], %1, %2;" ::"l"(word), "l"(seen),
               "l"(Note{0})
               : "memory");
}
__device__ inline u64 nanoseconds_now() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace zerohop::device
