// How one thread waits for slots of its process's board. Notes from GPUs lie in this GPU's
// memory; values from CPUs and adapters lie in host memory, where a read takes a microsecond: they
// are checked less often.
#pragma once

#include "zerohop/types.h"
#include "zerohop/words.cuh"

namespace zerohop::device::waiting {

constexpr u32 kLooks = 16;  // checks of a slot's note for each check of its word and the clock
constexpr u64 kBetweenCares =
    50000;                  // nanoseconds between two checks whether anybody can still notify
constexpr u32 kAtOnce = 8;  // slots that are read together

struct Range {
  u32 first;
  u32 count;
};
struct Found {
  u32 slot = 0;
  u32 value = 0;  // 0: none
  Status status = Status::ok;
};

// Each returns the current value (0: none), and takes it on request.
__device__ inline u32 look_at_note(const Board& board, u32 slot, Reset reset) {
  const u64 at = board.notes + slot * sizeof(Note);
  const Note note = acquire_note(at);
  if (value_of(note) == 0 || reset == Reset::no) return value_of(note);
  if (reset == Reset::yes) return value_of(take_note(at, note));  // 0: another thread was faster
  forget_note(at, note);
  return value_of(note);
}
__device__ inline u32 look_at_word(const Board& board, u32 slot, Reset reset) {
  const u64 at = board.words + slot * sizeof(u32);
  return reset == Reset::no ? acquire(at) : take(at);
}

__device__ inline Found find_note(const Board& board, Range range, Reset reset) {
  if (range.count == 1) return {range.first, look_at_note(board, range.first, reset)};
  for (u32 i = 0; i < range.count; i += kAtOnce) {
    Note seen[kAtOnce];
#pragma unroll
    for (u32 k = 0; k < kAtOnce; ++k) {
      const u32 slot = range.first + i + k;
      seen[k] = i + k < range.count ? glance_at_note(board.notes + slot * sizeof(Note)) : 0;
    }
#pragma unroll
    for (u32 k = 0; k < kAtOnce; ++k) {
      if (value_of(seen[k]) == 0) continue;
      const u32 slot = range.first + i + k;
      if (const u32 value = look_at_note(board, slot, reset)) return {slot, value};
    }
  }
  return {};
}

// The words of a range's first slots. The load is not waited for until the values are used.
struct Glance {
  u32 words[kAtOnce];
};
__device__ inline Glance glance_at_words(const Board& board, Range range) {
  Glance seen;
#pragma unroll
  for (u32 k = 0; k < kAtOnce; ++k) {
    seen.words[k] = k < range.count ? glance(board.words + (range.first + k) * sizeof(u32)) : 0;
  }
  return seen;
}
__device__ inline Found find_seen(const Board& board, Range range, const Glance& seen,
                                  Reset reset) {
#pragma unroll
  for (u32 k = 0; k < kAtOnce; ++k) {
    if (seen.words[k] == 0) continue;
    const u32 slot = range.first + k;
    if (const u32 value = look_at_word(board, slot, reset)) return {slot, value};
  }
  return {};
}

__device__ inline Found find_word(const Board& board, Range range, Reset reset) {
  for (u32 i = 0; i < range.count; i += kAtOnce) {
    const Range rest = {range.first + i, range.count - i};
    const Found found = find_seen(board, rest, glance_at_words(board, rest), reset);
    if (found.value != 0) return found;
  }
  return {};
}

__device__ inline Found find(const Board& board, Range range, Reset reset) {
  const Found found = find_note(board, range, reset);
  return found.value != 0 ? found : find_word(board, range, reset);
}

// Checks the notes repeatedly, and once the words, as they were when requested.
__device__ inline Found find_for_a_while(const Board& board, Range range, const Glance& seen,
                                         Reset reset) {
  for (u32 look = 0; look < kLooks; ++look) {
    const Found found = find_note(board, range, reset);
    if (found.value != 0) return found;
  }
  const Found found = find_seen(board, range, seen, reset);
  if (found.value != 0 || range.count <= kAtOnce) return found;
  return find_word(board, {range.first + kAtOnce, range.count - kAtOnce}, reset);
}

// Status: as wait_notify_any().
__device__ inline Found wait(const Board& board, Range range, Reset reset, u64 nanoseconds) {
  if (nanoseconds == 0) {
    Found found = find(board, range, reset);
    if (found.value == 0) found.status = Status::timed_out;
    return found;
  }
  const u64 began = nanoseconds_now();
  u64 cared = began;
  Glance seen = {};
  for (;;) {
    Found found = find_for_a_while(board, range, seen, reset);
    if (found.value != 0) return found;
    seen = glance_at_words(board, range);
    const u64 now = nanoseconds_now();
    const bool late = now - began >= nanoseconds;
    if (!late && now - cared < kBetweenCares) continue;
    cared = now;
    const bool closed = acquire(board.closed) != 0;
    if (!late && !closed) continue;
    found = find(board, range, reset);  // a value that came before is still taken
    if (found.value == 0) found.status = closed ? Status::closed : Status::timed_out;
    return found;
  }
}

}  // namespace zerohop::device::waiting
