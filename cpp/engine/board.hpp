// The notification board: numbered slots, each empty (0) or holding a 32-bit value put by a peer
// (GASPI, "weak synchronisation": gaspi_notify_waitsome, gaspi_notify_reset).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace zerohop::engine {

class Board {
 public:
  static constexpr std::uint32_t kSlots = 65536;

  // The release pairs with the acquires below: who sees the value sees the data it follows.
  void put(std::uint32_t slot, std::uint32_t value) noexcept {
    slots_[slot].store(value, std::memory_order_release);
    puts_.fetch_add(1, std::memory_order_release);
  }

  std::uint32_t peek(std::uint32_t slot) const noexcept {
    return slots_[slot].load(std::memory_order_acquire);
  }
  // Empties the slot and returns what was in it; 0: nothing was, or another thread took it.
  std::uint32_t reset(std::uint32_t slot) noexcept {
    return slots_[slot].exchange(0, std::memory_order_acq_rel);
  }

  // The first non-empty slot of [first, first + count) and its value.
  std::optional<std::pair<std::uint32_t, std::uint32_t>> find(std::uint32_t first,
                                                              std::uint32_t count,
                                                              bool reset) noexcept;

  // Rises with every put: a waiter that finds it unchanged need not scan again.
  std::uint64_t puts() const noexcept { return puts_.load(std::memory_order_acquire); }

 private:
  std::unique_ptr<std::atomic<std::uint32_t>[]> slots_ =
      std::make_unique<std::atomic<std::uint32_t>[]>(kSlots);
  std::atomic<std::uint64_t> puts_{0};
};

}  // namespace zerohop::engine
