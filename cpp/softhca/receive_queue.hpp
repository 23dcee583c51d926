// The receive queue of a queue pair: posted buffers in a ring that is allocated at creation.
#pragma once

#include <infiniband/verbs.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace zerohop::softhca {

struct ReceiveEntry {
  std::uint64_t wr_id;
  std::uint64_t capacity;  // bytes of all elements
  std::uint32_t sge_count;
};

class ReceiveQueue {
 public:
  ReceiveQueue(std::uint32_t depth, std::uint32_t most_sge)
      : depth_(depth),
        mask_(std::bit_ceil(depth) - 1),
        most_sge_(most_sge),
        entries_(new ReceiveEntry[mask_ + 1]),
        sges_(new ibv_sge[std::size_t{mask_ + 1} * most_sge]) {}

  std::uint32_t count() const noexcept { return tail_ - head_; }
  bool full() const noexcept { return count() == depth_; }
  bool empty() const noexcept { return tail_ == head_; }
  std::uint32_t most_sge() const noexcept { return most_sge_; }

  // The entry `ahead` places behind the oldest one.
  const ReceiveEntry& peek(std::uint32_t ahead = 0) const noexcept {
    return entries_[(head_ + ahead) & mask_];
  }
  const ibv_sge* peek_sges(std::uint32_t ahead = 0) const noexcept {
    return &sges_[std::size_t{(head_ + ahead) & mask_} * most_sge_];
  }
  void pop() noexcept { ++head_; }

  // The place of the next entry to post; push() makes it visible.
  ReceiveEntry& free_entry() noexcept { return entries_[tail_ & mask_]; }
  ibv_sge* free_sges() noexcept { return &sges_[std::size_t{tail_ & mask_} * most_sge_]; }
  void push() noexcept { ++tail_; }
  void clear() noexcept { head_ = tail_ = 0; }

 private:
  std::uint32_t depth_;
  std::uint32_t mask_;
  std::uint32_t most_sge_;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
  std::unique_ptr<ReceiveEntry[]> entries_;
  std::unique_ptr<ibv_sge[]> sges_;
};

}  // namespace zerohop::softhca
