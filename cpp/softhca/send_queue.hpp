// The send queue of a queue pair: posted work requests in rings that are allocated at creation.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "softhca/ring.hpp"

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
  ibv_wc_status refusal;  // of what nobody can carry out, or is not to
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
class SendQueue : public Ring {
 public:
  SendQueue(std::uint32_t depth, std::uint32_t most_sge, std::uint32_t most_inline)
      : Ring(depth),
        most_sge_(most_sge),
        most_inline_(most_inline),
        entries_(new SendEntry[places()]),
        sges_(new ibv_sge[places() * most_sge]),
        inline_data_(new std::byte[places() * most_inline]) {}

  SendEntry& at(std::uint32_t number) noexcept { return entries_[place(number)]; }
  ibv_sge* sges(std::uint32_t number) noexcept { return &sges_[place(number) * most_sge_]; }
  std::byte* inline_data(std::uint32_t number) noexcept {
    return &inline_data_[place(number) * most_inline_];
  }
  std::uint32_t most_sge() const noexcept { return most_sge_; }
  std::uint32_t most_inline() const noexcept { return most_inline_; }

 private:
  std::uint32_t most_sge_;
  std::uint32_t most_inline_;
  std::unique_ptr<SendEntry[]> entries_;
  std::unique_ptr<ibv_sge[]> sges_;
  std::unique_ptr<std::byte[]> inline_data_;
};

}  // namespace zerohop::softhca
