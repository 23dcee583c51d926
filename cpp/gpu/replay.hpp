// What the kernels of captured calls work with. A replay carries the same arguments as the one
// before: what changes from one to the next lies in GPU memory. Included by host code and by
// kernels.
#pragma once

#include <cstdint>

#include "gpu/tail.hpp"

namespace zerohop::gpu {

// Tag of writers that count their notes slot by slot, from 1 (modulo device::kCounts): a reader
// takes them one after the other, even if several came before it looked.
constexpr std::uint32_t kCounted = std::uint32_t{1} << 30;
static_assert(kCounted < kForCpuAlone && kCounted > kFirstTag);

// In place of the tag taken last: no note was ever taken from the slot; it is unknown which.
constexpr std::uint32_t kNoneTaken = 0;
constexpr unsigned char kUnknownTaken = 1;  // each byte of it; no writer that counts has that tag

// How many notes of a slot have come since the one taken last, up to the one with `tag`; 0: none.
ZEROHOP_BOTH constexpr std::uint32_t notes_ahead(std::uint32_t tag, std::uint32_t taken) {
  constexpr std::uint32_t kMask = device::kCounts - 1;
  if (taken != kNoneTaken && ((tag ^ taken) & ~kMask) != 0) return 1;  // another writer
  const std::uint32_t ahead = (tag - taken) & kMask;  // from the first, if none was taken
  return ahead < device::kCounts / 2 ? ahead : 0;
}
// The tag of the note that came `ahead` before it.
ZEROHOP_BOTH constexpr std::uint32_t tag_before(std::uint32_t tag, std::uint32_t ahead) {
  constexpr std::uint32_t kMask = device::kCounts - 1;
  return (tag & ~kMask) | ((tag - ahead) & kMask);
}
// The n-th value, n from 0: 1 follows 2**32 - 1, as 0 means an empty slot.
ZEROHOP_BOTH constexpr std::uint32_t counted_value(std::uint32_t first, std::uint32_t n) {
  return static_cast<std::uint32_t>(1 + (std::uint64_t{first} - 1 + n) % 0xFFFFFFFFU);
}

struct ReplayedNote {
  std::uint64_t gate = 0;      // 32 bits of this GPU; not 0: the peer's memory must not be touched
  std::uint64_t count = 0;     // 32 bits of this GPU: notes for the slot that replays have begun
  std::uint64_t placed = 0;    // 32 bits of this GPU: ... that they have put into it
  std::uint64_t mirror = 0;    // as in Tail; 0: none
  std::uint64_t slot = 0;      // as in Tail
  std::uint64_t replaced = 0;  // as in Tail
  std::uint32_t writer = 0;    // the part of its tags that is not the count
  std::uint32_t value = 0;     // of the first
};

struct ReplayedWait {
  std::uint64_t word = 0;    // as in Wait
  std::uint64_t note = 0;    // as in Wait
  std::uint64_t taken = 0;   // 32 bits of this GPU: the tag of the counted note taken last
  std::uint64_t closed = 0;  // 32 bits of host memory; not 0: nothing will come any more
  std::uint64_t fault = 0;   // a WaitFault
  std::uint64_t faults = 0;  // 32 bits of pinned memory: how many there were, of all waits
  std::uint64_t nanoseconds = 0;
  Awaited awaited = Awaited::slot;
  std::uint32_t number = 0;
};

// Of one captured wait, in pinned memory: how it ended last in vain, and how often it did. Written
// and read as a whole.
struct alignas(8) WaitFault {
  std::uint32_t outcome = kWaiting;  // kTimedOut or kCancelled
  std::uint32_t count = 0;
};
// The WaitFault that follows, as 64 bits.
ZEROHOP_BOTH constexpr std::uint64_t next_fault(std::uint64_t fault, std::uint32_t outcome) {
  return ((fault >> 32) + 1) << 32 | outcome;
}

}  // namespace zerohop::gpu
