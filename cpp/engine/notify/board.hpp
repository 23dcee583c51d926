// The notification board: numbered slots, each empty (0) or holding a 32-bit value put by a peer
// (GASPI, "weak synchronisation": gaspi_notify_waitsome, gaspi_notify_reset). It lies in pages that
// processes of this host map: they write it directly, and so do their GPUs, in separate words (see
// GpuNotes).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/buffer.hpp"
#include "engine/notify/board_pages.hpp"
#include "engine/notify/gpu_notes.hpp"

namespace zerohop::engine {
class Board {
 public:
  static constexpr std::uint32_t kSlots = BoardPages::kSlots;

  Board() : buffer_(sizeof(BoardPages)) {}  // throws RegistrationError

  const Buffer& buffer() const noexcept { return buffer_; }  // mapped by others
  BoardPages& pages() const noexcept { return *reinterpret_cast<BoardPages*>(buffer_.data()); }
  GpuNotes& gpu_notes() noexcept { return notes_; }
  std::atomic<int>& sleepers() noexcept { return pages().sleepers; }

  void put(std::uint32_t slot, std::uint32_t value) noexcept { pages().put(slot, value); }

  std::uint32_t peek(std::uint32_t slot) const noexcept {
    const std::uint32_t value = pages().slots[slot].load(std::memory_order_acquire);
    return value != 0 ? value : notes_.peek(slot);
  }
  // Empties the slot and returns its value; 0: it was empty, or another thread took it.
  std::uint32_t reset(std::uint32_t slot) noexcept {
    const std::uint32_t value = pages().slots[slot].exchange(0, std::memory_order_acq_rel);
    return value != 0 ? value : notes_.take(slot);
  }

  // Whether the CPU may find something: takes no lock, unlike peek().
  bool may_have(std::uint32_t slot) const noexcept {
    return pages().slots[slot].load(std::memory_order_acquire) != 0 ||
           gpu::value_of(pages().notes[slot].load(std::memory_order_acquire)) != 0;
  }

  // The first non-empty slot of [first, first + count) and its value.
  std::optional<std::pair<std::uint32_t, std::uint32_t>> find(std::uint32_t first,
                                                              std::uint32_t count,
                                                              bool reset) noexcept;

  // Increases with every put: a waiter that finds it unchanged need not scan again. Sequentially
  // consistent: a thread that reads it after it has counted itself among the sleepers is woken, or
  // sees the put.
  std::uint64_t puts() const noexcept { return pages().puts.load(); }

 private:
  Buffer buffer_;
  GpuNotes notes_{pages()};
};

}  // namespace zerohop::engine
