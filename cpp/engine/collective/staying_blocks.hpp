// Blocks that stay in the inboxes where they arrived, until the next step begins: it saves a copy.
#pragma once

#include <cstring>
#include <vector>

#include "engine/collective/line.hpp"
#include "engine/collective/schedule.hpp"

namespace zerohop::engine::collective {

class StayingBlocks {
 public:
  // message: in the inbox, and the last one of this call over the line: later ones are behind it.
  void keep(Line& line, Move& move, const Message& message) {
    move.arrived = message.payload.data();
    blocks_.push_back({&line, &move, message});
  }
  bool empty() const noexcept { return blocks_.empty(); }
  bool latest_is_of(const Line& line) const noexcept {
    return !blocks_.empty() && blocks_.back().line == &line;
  }
  // Copies them to their targets, to make room in the inboxes.
  void copy_out() {
    for (const auto& [line, move, message] : blocks_) {
      std::memcpy(move->bytes, move->arrived, move->nbytes);
      move->arrived = move->bytes;
    }
    release();
  }
  void release() noexcept {  // they have been used
    for (const auto& [line, move, message] : blocks_) line->emptied(message);
    blocks_.clear();
  }

 private:
  struct Staying {
    Line* line;
    Move* move;
    Message message;
  };
  std::vector<Staying> blocks_;
};

}  // namespace zerohop::engine::collective
