// The pages of a notification board, shared by the processes of one host; zero-initialized.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "gpu/tail.hpp"

namespace zerohop::engine {

struct BoardPages {
  static constexpr std::uint32_t kSlots = 65536;
  static constexpr std::uint32_t kRecent = 256;

  // The release pairs with the acquires of the Board: a reader that sees the value sees the data
  // before it. A sleeper increments `sleepers`, then reads `puts`, then scans the slots; a writer
  // reads `sleepers` after its put.
  void put(std::uint32_t slot, std::uint32_t value) noexcept {
    replace_note(slot);
    slots[slot].store(value, std::memory_order_release);
    const std::uint64_t number = puts.fetch_add(1);
    recent[number % kRecent].store((number + 1) * kSlots + slot, std::memory_order_release);
  }

  // The slot of that put. nullopt: not written yet, overwritten by later puts, or a GPU's.
  std::optional<std::uint32_t> slot_of(std::uint64_t number) const noexcept {
    const std::uint64_t put = recent[number % kRecent].load(std::memory_order_acquire);
    if (put / kSlots != number + 1) return std::nullopt;
    return static_cast<std::uint32_t>(put % kSlots);
  }

  // A GPU has put a note: the GPU can neither count it nor see the sleepers.
  void announce() noexcept { puts.fetch_add(1); }

  // Of a note that a later value replaces, only the tag stays, for streams.
  void replace_note(std::uint32_t slot) noexcept {
    gpu::Note note = notes[slot].load(std::memory_order_relaxed);
    while (gpu::value_of(note) != 0 &&
           !notes[slot].compare_exchange_weak(note, gpu::make_note(0, gpu::tag_of(note)))) {
    }
  }

  // Where in GPU memory the mirrors of the notes lie. Settled once, by the owner or by the first
  // process whose GPU puts a note; others use it as they find it.
  struct Mirrors {
    enum State : std::uint32_t { unsettled, none, there };
    std::atomic<std::uint32_t> state;
    std::uint64_t key;      // this and the next are valid once they exist
    std::uint64_t address;  // of slot 0, in the owner's addresses
  };

  alignas(64) std::atomic<std::uint64_t> puts;
  alignas(64) std::atomic<int> sleepers;           // threads of the owner that must be woken
  alignas(64) std::atomic<std::uint32_t> writers;  // whose GPUs put notes, in order of arrival
  std::atomic<std::uint32_t> kernels;  // ... whose kernels do, waking nobody: see Poller
  std::atomic<std::uint32_t> lonely;   // not 0: nobody is left that could put anything
  Mirrors mirrors;
  // The last puts, each after its number: a reader of a few puts need not scan every slot.
  alignas(64) std::atomic<std::uint64_t> recent[kRecent];
  alignas(64) std::atomic<std::uint32_t> slots[kSlots];
  alignas(64) std::atomic<gpu::Note> notes[kSlots];  // written by GPUs only
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "it lies between processes");

}  // namespace zerohop::engine
