// Large blocks that a rank sends in slices, to each other rank one slice at a time.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/collective/message_queue.hpp"

namespace zerohop::engine::collective {

class SlicedSends {
 public:
  void add(Line& line, Move& move) { sends_.push_back({&line, What::data, &move}); }
  void clear() noexcept { sends_.clear(); }
  bool has(const Move& move) const noexcept {
    return std::ranges::find(sends_, &move, &Queued::move) != sends_.end();
  }
  // Whether one of the other ranks has room for a slice.
  bool any_fits() const noexcept { return std::ranges::any_of(sends_, &Queued::fits); }
  // Adds a slice to an empty queue for each line at most, where there is room for it.
  void queue_into(MessageQueue& queue) const {
    for (const Queued& slice : sends_) {
      if (slice.fits() && !queue.has_any_to(slice.line)) queue.add(slice);
    }
  }
  // Counts the slice that has been sent. True: it was the last one of its block.
  bool sent(Move& move) {
    move.moved += move.next_slice();
    if (move.moved < move.nbytes) return false;
    std::erase_if(sends_, [&](const Queued& slice) { return slice.move == &move; });
    return true;
  }

 private:
  std::vector<Queued> sends_;  // the next slice of each
};

}  // namespace zerohop::engine::collective
