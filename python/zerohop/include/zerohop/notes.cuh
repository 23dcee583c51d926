// The notes that a kernel puts with a Queue.
#pragma once

#include "zerohop/note.h"
#include "zerohop/types.h"

namespace zerohop::device {

// Of that value, with a tag of its own. Asked for early: it takes as long as a copy of a few KiB.
__device__ inline Note next_note(const Queue& queue, u32 value) {
  const u32 count = atomicAdd(reinterpret_cast<u32*>(queue.count), 1u);
  return make_note(value, queue.writer * kCounts + count % kCounts);
}

}  // namespace zerohop::device
