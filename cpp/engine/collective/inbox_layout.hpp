// Where messages lie in an inbox: one behind the other, in laps. Both ranks know where from the
// lengths of the messages before. A lap ends where the ring does, or behind so many messages: small
// ones stay in the caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "engine/collective/message.hpp"

namespace zerohop::engine::collective {

// A message begins within the ring and may reach beyond it. Four of the longest fit.
inline constexpr std::size_t kAlignment = 64;  // of every message: a cache line
inline constexpr std::size_t kRing = 3 * kLongest + kAlignment;
inline constexpr std::size_t kInbox = kRing + kLongest;
inline constexpr std::size_t kMostMessages = 64;  // of a lap, and that nobody has taken
static_assert(kLongest % kAlignment == 0);

// length: bytes behind the header.
constexpr std::size_t room_of(std::size_t length) noexcept {
  return (sizeof(Header) + length + kAlignment - 1) / kAlignment * kAlignment;
}

// Where the next message begins.
class Position {
 public:
  std::size_t offset() const noexcept { return offset_; }
  // A message of that length is there.
  void pass(std::size_t length) noexcept {
    offset_ += room_of(length);
    if (++in_lap_ == kMostMessages || offset_ >= kRing) *this = {};
  }

 private:
  std::size_t offset_ = 0;
  std::size_t in_lap_ = 0;  // messages before
};

// The other rank's inbox, as the sender knows it.
class Room {
 public:
  bool fits(std::size_t length) const noexcept {
    if (used_.empty()) return true;
    if (used_.size() == kMostMessages) return false;
    // In the lap of the oldest one, or in the next one, before it.
    return next() > used_.front() || next() + room_of(length) <= used_.front();
  }
  std::size_t next() const noexcept { return next_.offset(); }
  void put(std::size_t length) {
    used_.push_back(next());
    next_.pass(length);
  }
  // The oldest ones.
  void free(std::uint64_t count) noexcept {
    used_.erase(used_.begin(), used_.begin() + static_cast<std::ptrdiff_t>(count));
  }

 private:
  std::deque<std::size_t> used_;  // offsets, the oldest first
  Position next_;
};

}  // namespace zerohop::engine::collective
