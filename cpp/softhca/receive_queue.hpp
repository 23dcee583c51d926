// The receive queue of a queue pair: posted buffers in a ring allocated at creation.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "softhca/ring.hpp"

namespace zerohop::softhca {

struct ReceiveEntry {
  std::uint64_t wr_id;
  std::uint64_t capacity;  // bytes of all elements
  std::uint32_t sge_count;
};

// The receive of the incoming message.
struct TakenReceive {
  explicit TakenReceive(std::uint32_t most_sge) : sges(new ibv_sge[most_sge]) {}

  bool there = false;
  ReceiveEntry entry{};
  std::unique_ptr<ibv_sge[]> sges;

  std::span<const ibv_sge> elements() const noexcept { return {sges.get(), entry.sge_count}; }
};

class ReceiveQueue : public Ring {
 public:
  ReceiveQueue(std::uint32_t depth, std::uint32_t most_sge)
      : Ring(depth),
        most_sge_(most_sge),
        entries_(new ReceiveEntry[places()]),
        sges_(new ibv_sge[places() * most_sge]) {}

  std::uint32_t most_sge() const noexcept { return most_sge_; }

  // 0 or errno.
  int post(const ibv_recv_wr& work) noexcept {
    if (work.num_sge < 0 || static_cast<std::uint32_t>(work.num_sge) > most_sge_) return EINVAL;
    if (full()) return ENOMEM;
    const auto count = static_cast<std::uint32_t>(work.num_sge);
    const std::span<const ibv_sge> elements(work.sg_list, count);
    std::uint64_t capacity = 0;
    for (const ibv_sge& element : elements) capacity += element.length;
    entries_[place(tail())] = {work.wr_id, capacity, count};
    std::ranges::copy(elements, &sges_[place(tail()) * most_sge_]);
    push();
    return 0;
  }

  // Takes the oldest. False: there is none.
  bool take(TakenReceive& taken) noexcept {
    if (empty()) return false;
    taken.there = true;
    taken.entry = entries_[place(head())];
    std::copy_n(&sges_[place(head()) * most_sge_], taken.entry.sge_count, taken.sges.get());
    pop();
    return true;
  }

 private:
  std::uint32_t most_sge_;
  std::unique_ptr<ReceiveEntry[]> entries_;
  std::unique_ptr<ibv_sge[]> sges_;
};

}  // namespace zerohop::softhca
