// The ring of a queue whose entries a thread of the host carries out, as that thread has it: the
// protocol of an adapter's, but that nobody rings a doorbell. One thread at a time.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "softhca/direct_completions.hpp"
#include "softhca/direct_sends.hpp"
#include "softhca/ring_memory.hpp"
#include "zerohop/ring_way.h"

namespace zerohop::gda {

class ProxyRing {
 public:
  static constexpr std::uint32_t kBlocks = 1024;  // that wait or are under way at most

  ProxyRing();  // throws Error

  // Addresses are the host's, and keys are not needed; but for the ring's state and the claims,
  // which are the kernels' own.
  device::RingWay describe() const;
  // Whole pages, which are to be mapped for a GPU.
  std::array<std::span<std::byte>, 3> pages() const;

  // The next entry, valid until the next call. Null: none is due.
  const softhca::Wqe* next() noexcept;
  // That it and all before it are done. False: kernels have left no place for that.
  bool complete(std::uint64_t index, ibv_wc_status status) noexcept;
  // What complete() is to be called behind. False: that is no place for results.
  bool put_result(std::uint64_t address, std::uint64_t value) noexcept;

 private:
  softhca::DirectSends sends_;
  softhca::DirectCompletions completions_;
  softhca::RingMemory results_;
};

}  // namespace zerohop::gda
