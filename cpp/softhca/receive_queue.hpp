// The receive queue of a queue pair: posted buffers in a ring that is allocated at creation.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "softhca/ring.hpp"

namespace zerohop::softhca {

struct ReceiveEntry {
  std::uint64_t wr_id;
  std::uint64_t capacity;  // bytes of all elements
  std::uint32_t sge_count;
};

class ReceiveQueue : public Ring {
 public:
  ReceiveQueue(std::uint32_t depth, std::uint32_t most_sge)
      : Ring(depth),
        most_sge_(most_sge),
        entries_(new ReceiveEntry[places()]),
        sges_(new ibv_sge[places() * most_sge]) {}

  std::uint32_t most_sge() const noexcept { return most_sge_; }

  // The entry `ahead` places behind the oldest one.
  const ReceiveEntry& peek(std::uint32_t ahead = 0) const noexcept {
    return entries_[place(head() + ahead)];
  }
  const ibv_sge* peek_sges(std::uint32_t ahead = 0) const noexcept {
    return &sges_[place(head() + ahead) * most_sge_];
  }

  // The place of the next entry to post; push() makes it visible.
  ReceiveEntry& free_entry() noexcept { return entries_[place(tail())]; }
  ibv_sge* free_sges() noexcept { return &sges_[place(tail()) * most_sge_]; }

 private:
  std::uint32_t most_sge_;
  std::unique_ptr<ReceiveEntry[]> entries_;
  std::unique_ptr<ibv_sge[]> sges_;
};

}  // namespace zerohop::softhca
