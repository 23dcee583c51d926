// What follows the copies of one launch, and what a kernel waits for: the words by which GPUs and
// CPUs of this host tell each other how far they are. Both sides of the language boundary read
// this.
#pragma once

#include <cstdint>

#include "zerohop/note.h"

namespace zerohop::gpu {

constexpr unsigned kMostThreads = 512;  // of a block that copies
// Launches of one module whose tails may be under way at once.
constexpr std::uint32_t kTails = 16384;

using device::make_note;
using device::Note;
using device::tag_of;
using device::value_of;
constexpr std::uint32_t kFirstTag = device::kCounts;  // smaller ones are Outcomes
// Of writers whose notes have no mirror, though there are mirrors: for the CPU alone.
constexpr std::uint32_t kForCpuAlone = std::uint32_t{1} << 31;
constexpr unsigned kTagsKnown = 8;  // that were taken last from a slot: the others are gone

// Put by the last block of a launch once every block's copies are placed.
struct Tail {
  std::uint64_t replaced = 0;  // 32 bits, which are emptied first; 0: none
  std::uint64_t mirror = 0;    // of the slot, in the memory of a GPU of the reader; 0: none
  std::uint64_t slot = 0;      // of a notification board; 0: none
  std::uint64_t done = 0;      // 32 bits of pinned memory
  Note note = 0;               // for the slot
  std::uint32_t number = 0;    // for `done`
  std::uint32_t place = 0;     // below kTails, and no other launch's: where its blocks are counted
};

// The few ranges of a launch, as its argument: no list to be read over the bus.
struct FewRanges {
  static constexpr unsigned kMost = 4;
  std::uint64_t from[kMost] = {};
  std::uint64_t to[kMost] = {};
  std::uint64_t nbytes[kMost] = {};
  std::uint64_t grain = 0;  // bytes that one warp copies
  std::uint32_t count = 0;
};

struct NoteAt {
  Note note = 0;
  std::uint64_t slot = 0;
};

enum class Awaited : std::uint32_t {
  slot,    // of a board: any value but 0, put by a GPU (`note`) or by whoever else (`word`)
  number,  // `number`, or one that came after it (modulo 2**32)
};

struct Wait {
  std::uint64_t word = 0;         // 32 bits
  std::uint64_t note = 0;         // a Note
  std::uint64_t given_up = 0;     // 32 bits of pinned memory: not 0, no use to wait any longer
  std::uint64_t end = 0;          // a WaitEnd
  std::uint64_t nanoseconds = 0;  // at most
  Awaited awaited = Awaited::slot;
  std::uint32_t number = 0;
  std::uint32_t use = 0;                 // for the WaitEnd
  std::uint32_t reset = 0;               // whether the slot is to be emptied
  std::uint32_t taken[kTagsKnown] = {};  // tags of notes that the CPU has taken already
};

// Or the tag of the note that came.
enum Outcome : std::uint32_t { kWaiting = 0, kCame = 1, kTimedOut = 2, kGivenUp = 3 };

// What became of a wait, in the GPU's own memory: to tell the host would hold the stream up for
// 1 us. Written as a whole.
struct alignas(16) WaitEnd {
  Note told = kWaiting;   // an Outcome, with the value above it; or the note that came
  std::uint64_t use = 0;  // of this place: whose end it is
};

}  // namespace zerohop::gpu
