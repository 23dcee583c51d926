// The messages that a rank still has to send in a call, in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "engine/collective/line.hpp"
#include "engine/collective/schedule.hpp"

namespace zerohop::engine::collective {

// A message about a block; of data: the block, or its next slice.
struct Queued {
  Line* line;
  What what;
  Move* move;

  std::span<const std::byte> data() const noexcept {
    return {move->bytes + move->moved, move->next_slice()};
  }
  bool fits() const noexcept {
    switch (what) {
      case What::data: return line->fits(move->next_slice());
      case What::ready: return line->fits(kMostReady);
      default: return line->fits(0);
    }
  }
};

class MessageQueue {
 public:
  void reserve(std::size_t count) { messages_.reserve(count); }
  void add(const Queued& message) { messages_.push_back(message); }
  bool empty() const noexcept { return next_ == messages_.size(); }
  const Queued& next() const noexcept { return messages_[next_]; }
  void pop() noexcept {
    if (++next_ == messages_.size()) clear();
  }
  void clear() noexcept {
    messages_.clear();
    next_ = 0;
  }
  bool has_any_to(const Line* line) const noexcept {
    return std::ranges::find(messages_, line, &Queued::line) != messages_.end();
  }

 private:
  std::vector<Queued> messages_;
  std::size_t next_ = 0;
};

}  // namespace zerohop::engine::collective
