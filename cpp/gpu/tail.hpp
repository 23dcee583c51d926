// What follows the copies of one launch, and what a kernel waits for: the words by which GPUs and
// CPUs of this host tell each other how far they are. Both sides of the language boundary read
// this.
#pragma once

#include <cstdint>

namespace zerohop::gpu {

// Launches of one module whose tails may be under way at once.
constexpr std::uint32_t kTails = 16384;

// Put by the last block of a launch once every block's copies are placed, and in this order.
struct Tail {
  std::uint64_t slot = 0;    // of a notification board; 0: none
  std::uint64_t done = 0;    // 32 bits of pinned memory
  std::uint32_t value = 0;   // for the slot
  std::uint32_t number = 0;  // for `done`
  std::uint32_t place = 0;   // below kTails, and no other launch's: where its blocks are counted
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

enum class Awaited : std::uint32_t {
  slot,    // of a board: any value but 0
  number,  // `number`, or one that came after it (modulo 2**32)
};

struct Wait {
  std::uint64_t word = 0;         // 32 bits
  std::uint64_t given_up = 0;     // 32 bits of pinned memory: not 0, no use to wait any longer
  std::uint64_t outcome = 0;      // 64 bits of pinned memory: an Outcome, with the value above it
  std::uint64_t nanoseconds = 0;  // at most
  Awaited awaited = Awaited::slot;
  std::uint32_t number = 0;
  std::uint32_t reset = 0;  // whether the slot is to be emptied
};

enum Outcome : std::uint32_t { kWaiting = 0, kCame = 1, kTimedOut = 2, kGivenUp = 3 };

}  // namespace zerohop::gpu
