// What follows the copies of one launch, and what a kernel waits for: the words by which GPUs and
// CPUs of this host report progress to each other. Included by host code and by kernels.
#pragma once

#include <cstdint>

#include "zerohop/note.h"

namespace zerohop::gpu {

constexpr unsigned kMostThreads = 512;  // per copying block
// Launches of one module whose tails may be pending at once.
constexpr std::uint32_t kTails = 16384;

using device::make_note;
using device::Note;
using device::tag_of;
using device::value_of;
constexpr std::uint32_t kFirstTag = device::kCounts;  // smaller values are Outcomes
// Tag of writers that do not write mirrors although mirrors exist: for the CPU only.
constexpr std::uint32_t kForCpuAlone = std::uint32_t{1} << 31;
constexpr unsigned kTagsKnown = 8;  // tags last taken from a slot; older ones are gone

// Written by the last block of a launch once the copies of all blocks are complete.
struct Tail {
  std::uint64_t replaced = 0;  // 32 bits, cleared first; 0: none
  std::uint64_t mirror = 0;    // of the slot, in memory of a GPU of the reader; 0: none
  std::uint64_t slot = 0;      // of a notification board; 0: none
  std::uint64_t done = 0;      // 32 bits of pinned memory
  Note note = 0;               // written to the slot
  std::uint32_t number = 0;    // written to `done`
  std::uint32_t place = 0;     // below kTails, unique among launches: where its blocks are counted
};

// The few ranges of a launch, passed as its argument: no list to read over the bus.
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
  slot,    // of a board: any value but 0, written by a GPU (`note`) or by others (`word`)
  number,  // `number`, or a later one (modulo 2**32)
};

struct Wait {
  std::uint64_t word = 0;         // 32 bits
  std::uint64_t note = 0;         // a Note
  std::uint64_t cancelled = 0;    // 32 bits of pinned memory; not 0: stop waiting
  std::uint64_t end = 0;          // a WaitEnd
  std::uint64_t nanoseconds = 0;  // upper bound
  Awaited awaited = Awaited::slot;
  std::uint32_t number = 0;
  std::uint32_t use = 0;                 // copied to the WaitEnd
  std::uint32_t reset = 0;               // whether to clear the slot
  std::uint32_t taken[kTagsKnown] = {};  // tags of notes that the CPU has consumed already
};

// Or the tag of the note that arrived.
enum Outcome : std::uint32_t { kWaiting = 0, kCame = 1, kTimedOut = 2, kCancelled = 3 };

// The result of a wait, in the GPU's own memory: a write to the host would delay the stream by 1
// us. Written as a whole.
struct alignas(16) WaitEnd {
  Note outcome = kWaiting;  // an Outcome, with the value above it; or the note that arrived
  std::uint64_t use = 0;    // which use of the place ended
};

}  // namespace zerohop::gpu
