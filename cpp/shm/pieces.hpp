// Splits runs into pieces that are copied one at a time; the rest can be copied later.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>

#include "base/runs.hpp"

namespace zerohop::shm {

// Iterates over a list, which the caller keeps alive.
class RunList {
 public:
  explicit RunList(std::span<const Run> runs) noexcept : left_(runs) {}

  bool next(Run& run) noexcept {
    if (left_.empty()) return false;
    run = left_.front();
    left_ = left_.subspan(1);
    return true;
  }

 private:
  std::span<const Run> left_;
};

template <typename Source>
class Pieces {
 public:
  explicit Pieces(Source runs) noexcept : runs_(std::move(runs)) {}

  bool more() noexcept { return left_.nbytes != 0 || runs_.next(left_); }

  // Returns a piece of 1 to `most` bytes. False at the end.
  bool next(Run& piece, std::uint64_t most) noexcept {
    if (!more()) return false;
    piece = {left_.a_address, left_.b_address, std::min(left_.nbytes, most)};
    left_.a_address += piece.nbytes;
    left_.b_address += piece.nbytes;
    left_.nbytes -= piece.nbytes;
    return true;
  }

 private:
  Source runs_;
  Run left_{};
};

// The progress of a copy made in steps.
using Cursor = std::variant<Pieces<Runs>, Pieces<RunList>>;

}  // namespace zerohop::shm
