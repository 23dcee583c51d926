// Let the CPU see whether a launch is done without a driver call: one word of pinned memory for
// each launch in progress.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/handles.hpp"
#include "gpu/places.hpp"
#include "gpu/tail.hpp"

namespace zerohop::gpu {

struct Ticket {
  std::uint32_t place = 0;
  std::uint32_t number = 0;  // the word's value once done
};

// Thread-safe. The device must have finished the work of all tickets before the object is
// destroyed.
class Tickets {
 public:
  // The caller has made a device current. Throws CudaError.
  explicit Tickets(const driver::Cuda& cuda);

  // Throws Error when all kTails are taken.
  Ticket take();
  void give_back(const Ticket& ticket) noexcept { places_.give_back(ticket.place); }

  bool done(const Ticket& ticket) const noexcept {
    const std::uint32_t found = words()[ticket.place].load(std::memory_order_acquire);
    return static_cast<std::int32_t>(found - ticket.number) >= 0;
  }
  // Pinned memory has the same address for the GPU: unified addressing.
  driver::CudaAddress word(const Ticket& ticket) const noexcept {
    return reinterpret_cast<driver::CudaAddress>(words() + ticket.place);
  }

 private:
  using Word = std::atomic<std::uint32_t>;
  Word* words() const noexcept { return static_cast<Word*>(page_.get()); }

  PinnedPages page_;
  Places places_{kTails};
  std::vector<std::uint32_t> numbers_;  // by place: the last one handed out; the holder's
};

}  // namespace zerohop::gpu
