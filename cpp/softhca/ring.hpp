// Numbering of the queues of a queue pair: entries have rising numbers that wrap, and places that
// are reused.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace zerohop::softhca {

class Ring {
 public:
  explicit Ring(std::uint32_t depth) noexcept : depth_(depth), mask_(std::bit_ceil(depth) - 1) {}

  std::uint32_t head() const noexcept { return head_; }  // the oldest entry, unless empty()
  std::uint32_t tail() const noexcept { return tail_; }  // the next entry
  std::uint32_t count() const noexcept { return tail_ - head_; }
  bool full() const noexcept { return count() == depth_; }
  bool empty() const noexcept { return tail_ == head_; }

  void push() noexcept { ++tail_; }  // the entry at tail() is filled
  void pop() noexcept { ++head_; }
  void clear() noexcept { head_ = tail_ = 0; }

 protected:
  // A power of two, so that places continue in order when the numbers wrap.
  std::size_t places() const noexcept { return std::size_t{mask_} + 1; }
  std::size_t place(std::uint32_t number) const noexcept { return number & mask_; }

 private:
  std::uint32_t depth_;
  std::uint32_t mask_;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
};

}  // namespace zerohop::softhca
