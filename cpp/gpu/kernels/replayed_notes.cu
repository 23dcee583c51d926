// Captured notifications, and captured waits for them: one thread each.
#include "gpu/kernels/words.cuh"
#include "gpu/replay.hpp"

namespace zerohop::gpu {

// Work captured before it in the stream is complete; the fence places its writes before the note.
// Kernels of several graphs put notes into one slot one after the other, in the order of their
// counts: a reader takes a note to say that all earlier ones have come.
__device__ inline void put_note(const ReplayedNote& put) {
  if (glance(put.gate) != 0) return;
  const u32 before = atomicAdd(reinterpret_cast<u32*>(put.count), 1U);
  const u32 tag = put.writer | ((before + 1) & (kCounts - 1));
  const Note note = make_note(counted_value(put.value, before), tag);
  while (acquire(put.placed) != before) {  // the kernel that counted before is running
  }
  if (put.replaced != 0) put_word(put.replaced, u32{0});
  fence_system();
  if (put.mirror != 0) put_word(put.mirror, note);
  put_word(put.slot, note);
  fence_gpu();
  put_word(put.placed, before + 1);
}

// Each returns whether it took one. Executables of one graph may wait at the same time.
__device__ inline bool take_counted(const ReplayedWait& wait, Note note) {
  const u32 tag = tag_of(note);
  for (;;) {
    const u32 taken = glance(wait.taken);
    const u32 ahead = notes_ahead(tag, taken);
    if (ahead == 0) return false;
    const u32 next = tag_before(tag, ahead - 1);
    if (atomicCAS(reinterpret_cast<u32*>(wait.taken), taken, next) != taken) continue;
    if (ahead == 1) forget_note(wait.note, note);
    return true;
  }
}

__device__ inline bool take_next(const ReplayedWait& wait) {
  const Note note = acquire_note(wait.note);
  if (value_of(note) == 0) return false;
  if ((tag_of(note) & kCounted) != 0) return take_counted(wait, note);
  return take_if(wait.note, note);  // not a later one, which may count
}

// seen: a glance at the word. Its acquire orders what follows.
__device__ inline bool take_word(const ReplayedWait& wait, u32 seen) {
  if (wait.awaited == Awaited::slot) return seen != 0 && take(wait.word) != 0;
  const auto reached = [&](u32 value) {
    return static_cast<std::int32_t>(value - wait.number) >= 0;
  };
  return reached(seen) && reached(acquire(wait.word));
}

__device__ inline u32 wait_for(const ReplayedWait& wait) {
  constexpr unsigned kLooks = 16;
  const u64 began = nanoseconds_now();
  for (;;) {
    // Both lie in host memory: the loads are in flight while notes are looked at.
    const u32 closed = glance(wait.closed);
    const u32 word = glance(wait.word);
    for (unsigned look = 0; wait.note != 0 && look < kLooks; ++look) {
      if (take_next(wait)) return kCame;
    }
    if (take_word(wait, word)) return kCame;
    const bool late = nanoseconds_now() - began > wait.nanoseconds;
    if (closed == 0 && !late) continue;
    fence_system();  // what came before is still taken
    if ((wait.note != 0 && take_next(wait)) || take_word(wait, acquire(wait.word))) return kCame;
    return closed != 0 ? kCancelled : kTimedOut;
  }
}

__device__ inline void report(const ReplayedWait& wait, u32 outcome) {
  put_word(wait.fault, next_fault(glance_at_note(wait.fault), outcome));
  fence_system();
  atomicAdd(reinterpret_cast<u32*>(wait.faults), 1U);  // among kernels: the CPU only reads it
}

}  // namespace zerohop::gpu

extern "C" __global__ void zerohop_replayed_note(zerohop::gpu::ReplayedNote put) {
  zerohop::gpu::put_note(put);
}

extern "C" __global__ void zerohop_replayed_wait(zerohop::gpu::ReplayedWait wait) {
  const auto outcome = zerohop::gpu::wait_for(wait);
  if (outcome != zerohop::gpu::kCame) zerohop::gpu::report(wait, outcome);
}
