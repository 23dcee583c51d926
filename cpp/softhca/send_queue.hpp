// The send queue of a queue pair: posted work requests in rings that are allocated at creation.
#pragma once

#include <infiniband/verbs.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace zerohop::softhca {

struct SendEntry {
  std::uint64_t wr_id;
  std::uint64_t remote_address;
  std::uint64_t compare;  // compare_swap: expected; fetch_add: addend
  std::uint64_t swap;
  std::uint32_t nbytes;
  std::uint32_t rkey;
  std::uint32_t immediate;
  std::uint16_t sge_count;  // 0 for inline data
  ibv_wr_opcode opcode;
  bool signaled;
  bool fenced;
  bool solicited;
  bool inlined;
  bool answered;  // a read or atomic whose response has arrived

  bool awaits_response() const noexcept {
    return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
           opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  }
};

// Entries are named by the number of their request: head() is the oldest that is not complete.
class SendQueue {
 public:
  SendQueue(std::uint32_t depth, std::uint32_t most_sge, std::uint32_t most_inline)
      : depth_(depth),
        mask_(std::bit_ceil(depth) - 1),
        most_sge_(most_sge),
        most_inline_(most_inline),
        entries_(new SendEntry[mask_ + 1]),
        sges_(new ibv_sge[std::size_t{mask_ + 1} * most_sge]),
        inline_data_(new std::byte[std::size_t{mask_ + 1} * most_inline]) {}

  bool full() const noexcept { return tail_ - head_ == depth_; }
  bool empty() const noexcept { return tail_ == head_; }
  std::uint32_t head() const noexcept { return head_; }
  std::uint32_t tail() const noexcept { return tail_; }

  SendEntry& at(std::uint32_t number) noexcept { return entries_[number & mask_]; }
  ibv_sge* sges(std::uint32_t number) noexcept {
    return &sges_[std::size_t{number & mask_} * most_sge_];
  }
  std::byte* inline_data(std::uint32_t number) noexcept {
    return &inline_data_[std::size_t{number & mask_} * most_inline_];
  }
  std::uint32_t most_sge() const noexcept { return most_sge_; }
  std::uint32_t most_inline() const noexcept { return most_inline_; }

  void push() noexcept { ++tail_; }  // the entry at tail() is filled
  void pop() noexcept { ++head_; }
  void clear() noexcept { head_ = tail_ = 0; }

 private:
  std::uint32_t depth_;
  std::uint32_t mask_;
  std::uint32_t most_sge_;
  std::uint32_t most_inline_;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
  std::unique_ptr<SendEntry[]> entries_;
  std::unique_ptr<ibv_sge[]> sges_;
  std::unique_ptr<std::byte[]> inline_data_;
};

}  // namespace zerohop::softhca
