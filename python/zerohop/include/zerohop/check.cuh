// Checks of arguments. A kernel cannot throw, so each call returns a Status.
#pragma once

#include "zerohop/types.h"

namespace zerohop::device {

// The sizes are often the same in all calls of a kernel; the compiler then reuses the difference.
__device__ inline bool fits(u64 offset, u64 nbytes, u64 whole) {
  return nbytes <= whole && offset <= whole - nbytes;
}

__device__ inline Status check_move(const Queue& queue, u32 right, u64 remote_offset,
                                    u64 local_offset, u64 nbytes) {
  if ((queue.rights & right) == 0) return Status::not_allowed;
  const bool inside = fits(remote_offset, nbytes, queue.remote_nbytes) &&
                      fits(local_offset, nbytes, queue.local_nbytes);
  return inside ? Status::ok : Status::out_of_bounds;
}

__device__ inline Status check_note(const Queue& queue, u32 slot, u32 value) {
  const bool good = slot < queue.slots && value != 0 && (queue.mirrors | queue.notes) != 0;
  return good ? Status::ok : Status::bad_slot;
}

__device__ inline Status check_element(const Queue& queue, u32 right, u64 offset, u64 size) {
  if ((queue.rights & right) == 0) return Status::not_allowed;
  if (!fits(offset, size, queue.remote_nbytes)) return Status::out_of_bounds;
  return (queue.remote + offset) % size == 0 ? Status::ok : Status::misaligned;
}

// Adapters have only 64-bit atomics.
__device__ inline Status check_atomic(const Queue& queue, u64 offset, u64 size) {
  if (queue.way == Way::ring && size != sizeof(u64)) return Status::not_allowed;
  return check_element(queue, kAtomics, offset, size);
}

}  // namespace zerohop::device
