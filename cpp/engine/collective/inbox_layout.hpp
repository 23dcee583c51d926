// How messages are laid out in an inbox: contiguously, in laps. Both ranks compute the offsets from
// the lengths of earlier messages. A lap ends at the end of the ring, or with a small message after
// kMostMessages: that keeps small messages in the caches. So one of the longest always fits behind
// another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "engine/collective/message.hpp"

namespace zerohop::engine::collective {

// A message begins inside the ring and may extend beyond it. Four of the longest fit.
inline constexpr std::size_t kAlignment = 64;  // of every message: a cache line
inline constexpr std::size_t kRing = 3 * kLongest + kAlignment;
inline constexpr std::size_t kInbox = kRing + kLongest;
inline constexpr std::size_t kMostMessages = 64;  // per lap, and unconsumed
inline constexpr std::size_t kSmall = 1 << 10;    // bytes of a message after which a lap may end
static_assert(kLongest % kAlignment == 0);

// length: bytes after the header.
constexpr std::size_t room_of(std::size_t length) noexcept {
  return (sizeof(Header) + length + kAlignment - 1) / kAlignment * kAlignment;
}

// Where the next message begins.
class Position {
 public:
  std::size_t offset() const noexcept { return offset_; }
  // Skips a message of that length.
  void pass(std::size_t length) noexcept {
    offset_ += room_of(length);
    ++in_lap_;
    if (offset_ >= kRing || (in_lap_ >= kMostMessages && length <= kSmall)) *this = {};
  }

 private:
  std::size_t offset_ = 0;
  std::size_t in_lap_ = 0;  // messages so far
};

// The sender's view of the other rank's inbox.
class Room {
 public:
  bool fits(std::size_t length) const noexcept {
    if (used_.empty()) return true;
    if (used_.size() == kMostMessages) return false;
    // Either in the lap of the oldest message, or in the next lap, before it.
    return next() > used_.front() || next() + room_of(length) <= used_.front();
  }
  std::size_t next() const noexcept { return next_.offset(); }
  void put(std::size_t length) {
    used_.push_back(next());
    next_.pass(length);
  }
  // Frees the oldest messages.
  void free(std::uint64_t count) noexcept {
    used_.erase(used_.begin(), used_.begin() + static_cast<std::ptrdiff_t>(count));
  }

 private:
  std::deque<std::size_t> used_;  // offsets, oldest first
  Position next_;
};

}  // namespace zerohop::engine::collective
