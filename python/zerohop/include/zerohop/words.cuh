// Words between GPUs and CPUs. Who acquires one sees what was placed before the fence that its
// writer has made ahead of it, whoever of the system placed it (PTX ISA, memory consistency model,
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
// Cheaper than __threadfence(), which orders more than what comes before with what comes after.
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
// Orders nothing: to have a look.
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
// Empties a word, and returns what was in it.
__device__ inline u32 take(u64 word) {
  u32 before;
  asm volatile("atom.acquire.sys.global.exch.b32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(word), "r"(0)
               : "memory");
  return before;
}
// Of what was acquired as `seen` already. An exchange that acquires by itself takes 1 us more.
__device__ inline Note take_note(u64 word, Note seen) {
  Note before;
  asm volatile("atom.relaxed.sys.global.exch.b64 %0, [%1], %2;"
               : "=l"(before)
               : "l"(word), "l"(Note{0})
               : "memory");
  if (before != seen) fence_system();  // a later one
  return before;
}
// Takes what was acquired as `seen` away, unless a later one has replaced it. Nobody waits for
// that.
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
