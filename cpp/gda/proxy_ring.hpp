// The ring of a queue whose entries a host thread executes, as that thread sees it: the protocol of
// an adapter's ring, but without a doorbell. Not thread-safe.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "driver/ring_memory.hpp"
#include "softhca/direct_completions.hpp"
#include "softhca/direct_sends.hpp"
#include "zerohop/ring_way.h"

namespace zerohop::gda {

class ProxyRing {
 public:
  static constexpr std::uint32_t kBlocks = 1024;  // most that wait or are in progress

  ProxyRing();  // throws Error

  // With host addresses, and no keys; without the ring's state and the claims, which belong to the
  // kernels.
  device::RingWay describe() const;
  // Whole pages, to be mapped for a GPU.
  std::array<std::span<std::byte>, 3> pages() const;

  // The next entry, valid until the next call. Null: none is posted.
  const softhca::Wqe* next() noexcept;
  // Completes that entry and all before it. False: kernels left no room for the completion.
  bool complete(std::uint64_t index, ibv_wc_status status) noexcept;
  // Call before complete(). False: the address is not one for results.
  bool put_result(std::uint64_t address, std::uint64_t value) noexcept;

 private:
  softhca::DirectSends sends_;
  softhca::DirectCompletions completions_;
  driver::RingMemory results_;
};

}  // namespace zerohop::gda
