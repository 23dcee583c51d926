// The notes that a kernel puts with a Queue.
#pragma once

#include "zerohop/note.h"
#include "zerohop/types.h"

namespace zerohop::device {

// The number of notes of the queue, modulo kCounts. Requested early and used late, because the
// answer takes as long as a copy of a few KiB. (ptxas would combine an addition for the whole warp,
// and wait for it at once.)
__device__ inline u32 count_note(const Queue& queue) {
  u32 count;
  asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(count)
               : "l"(queue.count), "r"(kCounts - 1)
               : "memory");
  return count;
}

// A note with that value, and a new tag.
__device__ inline Note next_note(const Queue& queue, u32 value, u32 count) {
  return make_note(value, queue.writer * kCounts + count);
}

}  // namespace zerohop::device
