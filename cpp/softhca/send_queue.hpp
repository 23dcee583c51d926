// The send queue of a queue pair: posted work requests in rings that are allocated at creation.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

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

// Entries are named by the number of their request: head() is the oldest that is not complete. The
// memory for them comes in blocks, as many as were needed at a time.
class SendQueue : public Ring {
 public:
  SendQueue(std::uint32_t depth, std::uint32_t most_sge, std::uint32_t most_inline)
      : Ring(depth),
        most_sge_(most_sge),
        most_inline_(most_inline),
        stride_(inline_at() + (most_inline + 7) / 8 * 8),
        blocks_((places() + kBlock - 1) / kBlock) {}

  // For the entry at tail(). False: there is no memory.
  bool make_room() noexcept {
    if (empty()) first_ = tail();  // from the first block on
    return make_room(blocks_[place(tail()) / kBlock]);
  }
  // For all entries.
  bool reserve() noexcept {
    return std::ranges::all_of(blocks_, [this](Block& block) { return make_room(block); });
  }
  SendEntry& at(std::uint32_t number) noexcept {
    return *reinterpret_cast<SendEntry*>(bytes_of(number));
  }
  ibv_sge* sges(std::uint32_t number) noexcept {
    return reinterpret_cast<ibv_sge*>(bytes_of(number) + sizeof(SendEntry));
  }
  std::byte* inline_data(std::uint32_t number) noexcept { return bytes_of(number) + inline_at(); }
  std::uint32_t most_sge() const noexcept { return most_sge_; }
  std::uint32_t most_inline() const noexcept { return most_inline_; }

 private:
  using Block = std::unique_ptr<std::byte[]>;
  static constexpr std::size_t kBlock = 4;  // entries

  bool make_room(Block& block) noexcept {
    if (!block) block.reset(new (std::nothrow) std::byte[kBlock * stride_]);
    return block != nullptr;
  }

  std::size_t inline_at() const noexcept { return sizeof(SendEntry) + most_sge_ * sizeof(ibv_sge); }
  std::size_t place(std::uint32_t number) const noexcept { return Ring::place(number - first_); }
  std::byte* bytes_of(std::uint32_t number) noexcept {
    const std::size_t at = place(number);
    return blocks_[at / kBlock].get() + at % kBlock * stride_;
  }

  const std::uint32_t most_sge_;
  const std::uint32_t most_inline_;
  const std::size_t stride_;  // bytes of an entry, with its elements and inline data
  std::vector<Block> blocks_;
  std::uint32_t first_ = 0;  // the number whose place is the first
};

static_assert(std::is_trivially_copyable_v<SendEntry> && sizeof(SendEntry) % alignof(ibv_sge) == 0);

}  // namespace zerohop::softhca
