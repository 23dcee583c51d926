// Generates the pieces of a long list in batches: the whole list exists only where the GPU reads
// it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "gpu/copy_piece.hpp"

namespace zerohop::gpu {

class PieceSource {
 public:
  virtual ~PieceSource() = default;
  // Writes the next pieces, at most `room`, each of 1 to `most` bytes; returns how many.
  virtual std::uint32_t fill(CopyPiece* into, std::uint32_t room, std::uint64_t most) = 0;
  virtual bool more() const noexcept = 0;  // whether fill() has more
};

// Splits a piece of at most `most` bytes off a range.
inline CopyPiece cut(CopyPiece& range, std::uint64_t most) {
  const CopyPiece piece{range.from, range.to, std::min(range.nbytes, most)};
  range = {range.from + piece.nbytes, range.to + piece.nbytes, range.nbytes - piece.nbytes};
  return piece;
}

// Pieces of existing ranges.
class RangeSource : public PieceSource {
 public:
  explicit RangeSource(std::span<const CopyPiece> ranges) : ranges_(ranges) { skip(); }

  std::uint32_t fill(CopyPiece* into, std::uint32_t room, std::uint64_t most) override {
    std::uint32_t count = 0;
    for (; count < room && more(); skip()) into[count++] = cut(rest_, most);
    return count;
  }
  bool more() const noexcept override { return rest_.nbytes > 0; }

 private:
  void skip() {
    for (; rest_.nbytes == 0 && !ranges_.empty(); ranges_ = ranges_.subspan(1)) {
      rest_ = ranges_.front();
    }
  }

  std::span<const CopyPiece> ranges_;  // after rest_
  CopyPiece rest_{};                   // remainder of one range
};

// One source followed by another.
class JoinedSource : public PieceSource {
 public:
  JoinedSource(PieceSource& first, PieceSource& then) : first_(first), then_(then) {}

  std::uint32_t fill(CopyPiece* into, std::uint32_t room, std::uint64_t most) override {
    const std::uint32_t count = first_.fill(into, room, most);
    return count + then_.fill(into + count, room - count, most);
  }
  bool more() const noexcept override { return first_.more() || then_.more(); }

 private:
  PieceSource& first_;
  PieceSource& then_;
};

}  // namespace zerohop::gpu
