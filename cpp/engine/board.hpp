// The notification board: numbered slots, each empty (0) or holding a 32-bit value put by a peer
// (GASPI, "weak synchronisation": gaspi_notify_waitsome, gaspi_notify_reset). It lies in pages that
// processes of this host map: they put by themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/buffer.hpp"

namespace zerohop::engine {

// The pages of a board; all zero in the beginning.
struct BoardPages {
  static constexpr std::uint32_t kSlots = 65536;

  // The release pairs with the acquires of the Board: who sees the value sees the data it follows.
  void put(std::uint32_t slot, std::uint32_t value) noexcept {
    slots[slot].store(value, std::memory_order_release);
    puts.fetch_add(1, std::memory_order_release);
  }

  // A GPU has put a value into a slot: it cannot count that, nor see who sleeps.
  void announce() noexcept { puts.fetch_add(1, std::memory_order_release); }

  alignas(64) std::atomic<std::uint64_t> puts;
  alignas(64) std::atomic<int> sleepers;  // threads of the owner that want to be woken
  alignas(64) std::atomic<std::uint32_t> slots[kSlots];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "it lies between processes");

class Board {
 public:
  static constexpr std::uint32_t kSlots = BoardPages::kSlots;

  Board() : buffer_(sizeof(BoardPages)) {}  // throws RegistrationError

  const Buffer& buffer() const noexcept { return buffer_; }  // to be mapped by others
  // Of a slot, for GPUs that the buffer is registered with.
  std::uint64_t address(std::uint32_t slot) const noexcept {
    return reinterpret_cast<std::uintptr_t>(&pages().slots[slot]);
  }
  std::atomic<int>& sleepers() noexcept { return pages().sleepers; }

  void put(std::uint32_t slot, std::uint32_t value) noexcept { pages().put(slot, value); }

  std::uint32_t peek(std::uint32_t slot) const noexcept {
    return pages().slots[slot].load(std::memory_order_acquire);
  }
  // Empties the slot and returns what was in it; 0: nothing was, or another thread took it.
  std::uint32_t reset(std::uint32_t slot) noexcept {
    return pages().slots[slot].exchange(0, std::memory_order_acq_rel);
  }

  // The first non-empty slot of [first, first + count) and its value.
  std::optional<std::pair<std::uint32_t, std::uint32_t>> find(std::uint32_t first,
                                                              std::uint32_t count,
                                                              bool reset) noexcept;

  // Rises with every put: a waiter that finds it unchanged need not scan again.
  std::uint64_t puts() const noexcept { return pages().puts.load(std::memory_order_acquire); }

 private:
  BoardPages& pages() const noexcept { return *reinterpret_cast<BoardPages*>(buffer_.data()); }

  Buffer buffer_;
};

}  // namespace zerohop::engine
