// Large blocks that a rank writes to their targets: a part of one, then of the next, in turn.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "engine/collective/line.hpp"
#include "engine/collective/schedule.hpp"

namespace zerohop::engine::collective {

class BlockWrites {
 public:
  static constexpr std::uint64_t kPart = std::uint64_t{512} << 10;  // bytes written at a time

  struct Write {
    Line* line;
    Move* move;
    RemoteMemory there;
    std::uint64_t written = 0;  // bytes
  };
  void add(Write write) { writes_.push_back(std::move(write)); }
  bool empty() const noexcept { return writes_.empty(); }
  void clear() noexcept { writes_.clear(); }
  // The next one in turn, which stays the current one until next() or done(). There must be one.
  const Write& next();
  Line& line() const noexcept { return *writes_.back().line; }  // of the current one
  // Posts a part of the current one, whose move has its Memory; what no CPU writes, as a whole.
  // True: it was the last part. Throws what Line::write throws.
  bool post_part(const Deadline& last);
  void done() noexcept { writes_.pop_back(); }

 private:
  std::vector<Write> writes_;  // the current one is the last
};

}  // namespace zerohop::engine::collective
