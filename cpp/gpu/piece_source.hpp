// Where the pieces of a long list come from, some at a time: the list as a whole lies nowhere but
// where the GPU reads it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "gpu/copy_piece.hpp"

namespace zerohop::gpu {

class PieceSource {
 public:
  virtual ~PieceSource() = default;
  // Writes down the next pieces, `room` at most, of `most` bytes each at most, and none of 0 bytes;
  // returns how many.
  virtual std::uint32_t fill(CopyPiece* into, std::uint32_t room, std::uint64_t most) = 0;
  virtual bool more() const noexcept = 0;  // left to fill()
};

// Takes a piece of at most `most` bytes off a range.
inline CopyPiece cut(CopyPiece& range, std::uint64_t most) {
  const CopyPiece piece{range.from, range.to, std::min(range.nbytes, most)};
  range = {range.from + piece.nbytes, range.to + piece.nbytes, range.nbytes - piece.nbytes};
  return piece;
}

// Of ranges that are there already.
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

  std::span<const CopyPiece> ranges_;  // behind the next
  CopyPiece rest_{};                   // of one of them
};

// One source, and then another one.
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
