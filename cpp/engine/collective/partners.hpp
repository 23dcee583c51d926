// The lines of a call, and how much is still expected over them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/collective/line.hpp"

namespace zerohop::engine::collective {

class Partners {
 public:
  // Unless it is there; nothing is expected over it so far.
  void add(Line& line) {
    if (std::ranges::find(lines_, &line) != lines_.end()) return;
    lines_.push_back(&line);
    line.incoming.clear();
    line.outgoing.clear();
    line.proposes = false;
  }
  void clear() noexcept {
    for (Line* line : lines_) {
      line->incoming.clear();
      line->outgoing.clear();
    }
    lines_.clear();
    missing_ = 0;
  }
  const std::vector<Line*>& lines() const noexcept { return lines_; }

  // of: what one of the lines expects.
  void expect(Expected& of, Move& move) {
    of.add(&move);
    ++missing_;
  }
  void arrived(Expected& of) noexcept {  // the first one
    of.pop();
    --missing_;
  }
  bool all_arrived() const noexcept { return missing_ == 0; }
  std::vector<Rank> missing() const {
    std::vector<Rank> found;
    for (const Line* line : lines_) {
      if (line->expects()) found.push_back(line->rank());
    }
    return found;
  }

 private:
  std::vector<Line*> lines_;
  std::size_t missing_ = 0;  // messages
};

}  // namespace zerohop::engine::collective
