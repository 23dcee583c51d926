// How one thread waits for slots of its process's board. Notes put by GPUs lie in this GPU's own
// memory; values put by CPUs and adapters in the host's, which takes a microsecond to read: they
// are looked at less often, and are on their way meanwhile.
#pragma once

#include "zerohop/types.h"
#include "zerohop/words.cuh"

namespace zerohop::device::waiting {

constexpr u32 kLooksAtNote = 16;      // for each at the word of its slot
constexpr u32 kLooks = 32;            // for each at the clock
constexpr u64 kBetweenCares = 50000;  // nanoseconds between two looks at whether there is any use

struct Range {
  u32 first;
  u32 count;
};
struct Found {
  u32 slot = 0;
  u32 value = 0;  // 0: nothing
};

// Returns the value that is there (0: none), and takes it if so asked.
__device__ inline u32 look_at_note(const Board& board, u32 slot, bool reset) {
  const u64 at = board.notes + slot * sizeof(Note);
  const Note note = acquire_note(at);
  if (value_of(note) == 0 || !reset) return value_of(note);
  return value_of(take_note(at, note));  // 0: another thread was faster
}
__device__ inline u32 look_at_word(const Board& board, u32 slot, bool reset) {
  const u64 at = board.words + slot * sizeof(u32);
  return reset ? take(at) : acquire(at);
}

__device__ inline Found find(const Board& board, Range range, bool reset, bool words) {
  for (u32 slot = range.first; slot < range.first + range.count; ++slot) {
    if (const u32 value = look_at_note(board, slot, reset)) return {slot, value};
    if (!words || glance(board.words + slot * sizeof(u32)) == 0) continue;
    if (const u32 value = look_at_word(board, slot, reset)) return {slot, value};
  }
  return {};
}

// One slot, as fast as can be.
__device__ inline u32 look(const Board& board, u32 slot, bool reset, u32 turn, u32& seen) {
  if (const u32 value = look_at_note(board, slot, reset)) return value;
  if (turn % kLooksAtNote == 0) seen = glance(board.words + slot * sizeof(u32));
  if (turn % kLooksAtNote != kLooksAtNote / 2 || seen == 0) return 0;
  return look_at_word(board, slot, reset);
}

__device__ inline Status wait(const Board& board, Range range, bool reset, u64 nanoseconds,
                              Found& found) {
  found = find(board, range, reset, true);
  if (found.value != 0) return Status::ok;
  const u64 began = nanoseconds_now();
  u64 cared = began;
  u32 seen = 0;
  for (;;) {
    for (u32 turn = 0; turn < kLooks; ++turn) {
      if (range.count == 1) {
        found = {range.first, look(board, range.first, reset, turn, seen)};
      } else {
        found = find(board, range, reset, turn % kLooksAtNote == 0);
      }
      if (found.value != 0) return Status::ok;
    }
    const u64 now = nanoseconds_now();
    if (now - began >= nanoseconds) return Status::timed_out;
    if (now - cared < kBetweenCares) continue;
    cared = now;
    if (acquire(board.closed) == 0) continue;
    // What came before that is still taken.
    found = find(board, range, reset, true);
    return found.value != 0 ? Status::ok : Status::closed;
  }
}

}  // namespace zerohop::device::waiting
