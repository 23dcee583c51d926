// A stream waits for a word: one thread polls it until it arrives, time runs out, or the CPU
// cancels the wait. cuStreamWaitValue32 would take three times as long, and would never return if
// the word did not arrive.
#include "gpu/kernels/words.cuh"

using namespace zerohop::gpu;

namespace {

constexpr unsigned kLooks = 32;       // polls of the word per poll of the clock and the cancel flag
constexpr unsigned kLooksAtNote = 8;  // per poll of the slot's word

__device__ bool is_taken(const Wait& wait, std::uint32_t tag) {
  bool found = false;
#pragma unroll
  for (unsigned i = 0; i < kTagsKnown; ++i) found = found || wait.taken[i] == tag;
  return found;
}

// Each poll returns the note to report, or kWaiting.
__device__ std::uint64_t came(std::uint32_t value) { return make_note(value, kCame); }

__device__ std::uint64_t look_at_note(const Wait& wait) {
  const Note note = acquire_note(wait.note);
  if (note == 0 || is_taken(wait, tag_of(note))) return kWaiting;
  if (wait.reset == 0) return note;
  // Take what is there: a later note may have replaced it. 0: another stream took it.
  const Note taken = take_note(wait.note, note);
  return is_taken(wait, tag_of(taken)) ? kWaiting : taken;
}

// The slot's word lies in host memory: its load is in flight while notes are polled.
__device__ std::uint64_t look_at_slot(const Wait& wait, unsigned turn, std::uint32_t& seen) {
  const std::uint64_t note = look_at_note(wait);
  if (note != kWaiting) return note;
  if (turn % kLooksAtNote == 0) seen = glance(wait.word);
  if (turn % kLooksAtNote != kLooksAtNote / 2 || seen == 0) return kWaiting;
  const std::uint32_t value = wait.reset != 0 ? take(wait.word) : acquire(wait.word);
  return value != 0 ? came(value) : kWaiting;  // 0: another stream was faster
}

__device__ std::uint64_t look_at_number(const Wait& wait) {
  const std::uint32_t value = acquire(wait.word);
  return static_cast<std::int32_t>(value - wait.number) >= 0 ? came(value) : kWaiting;
}

__device__ std::uint64_t wait_for(const Wait& wait) {
  const std::uint64_t began = nanoseconds_now();
  std::uint32_t seen = 0;
  for (;;) {
    for (unsigned turn = 0; turn < kLooks; ++turn) {
      const std::uint64_t found =
          wait.awaited == Awaited::slot ? look_at_slot(wait, turn, seen) : look_at_number(wait);
      if (found != kWaiting) return found;
    }
    if (acquire(wait.cancelled) != 0) return kCancelled;
    if (nanoseconds_now() - began > wait.nanoseconds) return kTimedOut;
  }
}

}  // namespace

extern "C" __global__ void zerohop_wait_word(Wait wait) {
  begin();
  // Kernels after this one see what preceded the word: it was acquired, and they start once this
  // one has ended. The CPU needs the word itself.
  put_end(wait.end, WaitEnd{wait_for(wait), wait.use});
}
