// The way for mapped memory: loads and stores reach the peer's array and notification board,
// over NVLink or PCIe.
#pragma once

#include "zerohop/copy.h"
#include "zerohop/notes.cuh"
#include "zerohop/team.cuh"
#include "zerohop/types.h"
#include "zerohop/words.cuh"

namespace zerohop::device::mapped {

template <typename T>
__device__ T* element(const Queue& queue, u64 offset) {
  return reinterpret_cast<T*>(queue.remote + offset);
}

// Ordered after the writes of the calling thread, and of others that it synchronised with: the
// fence is cumulative. The kernels' copy is written first: they are more sensitive to latency.
__device__ inline void put_note(const Queue& queue, u32 slot, u32 value, u32 count) {
  const Note note = next_note(queue, value, count);
  const u64 mirror = queue.mirrors + slot * sizeof(Note);
  const u64 on_board = queue.notes + slot * sizeof(Note);
  fence_system();
  if (queue.mirrors != 0) put_word(mirror, note);
  if (queue.notes != 0) put_word(on_board, note);
}

template <typename Team>
__device__ void put(const Queue& queue, u64 remote_offset, u64 local_offset, u64 nbytes) {
  copy_bytes<Team>(queue.remote + remote_offset, queue.local + local_offset, nbytes);
}

template <typename Team>
__device__ void get(const Queue& queue, u64 remote_offset, u64 local_offset, u64 nbytes) {
  copy_bytes<Team>(queue.local + local_offset, queue.remote + remote_offset, nbytes);
}

template <typename Team>
__device__ void put_notify(const Queue& queue, u64 remote_offset, u64 local_offset, u64 nbytes,
                           u32 slot, u32 value) {
  const bool first = Team::rank() == 0;
  const u32 count = first ? count_note(queue) : 0;
  mapped::put<Team>(queue, remote_offset, local_offset, nbytes);
  Team::sync();
  if (first) put_note(queue, slot, value, count);
}

// All puts of the team are in place.
template <typename Team>
__device__ void flush() {
  Team::sync();
  if (Team::rank() == 0) fence_system();
  Team::sync();
}

// Relaxed, in system scope: atomic with respect to CPUs and GPUs, not ordered with puts.
__device__ inline u32 fetch_add(const Queue& queue, u64 offset, u32 value) {
  return atomicAdd_system(element<u32>(queue, offset), value);
}
__device__ inline u64 fetch_add(const Queue& queue, u64 offset, u64 value) {
  using Word = unsigned long long;
  return atomicAdd_system(element<Word>(queue, offset), static_cast<Word>(value));
}
__device__ inline u32 compare_swap(const Queue& queue, u64 offset, u32 expected, u32 desired) {
  return atomicCAS_system(element<u32>(queue, offset), expected, desired);
}
__device__ inline u64 compare_swap(const Queue& queue, u64 offset, u64 expected, u64 desired) {
  using Word = unsigned long long;
  return atomicCAS_system(element<Word>(queue, offset), static_cast<Word>(expected),
                          static_cast<Word>(desired));
}

}  // namespace zerohop::device::mapped
