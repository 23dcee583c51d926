// The notifications that GPUs of other processes have put into a board, as the owner's CPU sees
// them. Each exists twice: here, and in GPU memory, where streams take it. What one side has taken
// the other still finds, and recognizes by its tag.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

#include "base/locks.hpp"
#include "engine/notify/board_pages.hpp"

namespace zerohop::engine {

// Thread-safe.
class GpuNotes {
 public:
  explicit GpuNotes(BoardPages& pages) : pages_(pages) {}

  // The value in the slot; 0: none, or it belongs to a stream that waits for it.
  std::uint32_t peek(std::uint32_t slot) const noexcept;
  // Takes it as well.
  std::uint32_t take(std::uint32_t slot);

  // From now on, notes that GPUs put into the slot belong to streams. Returns the tags already
  // taken.
  using Tags = std::array<std::uint32_t, gpu::kTagsKnown>;
  Tags begin_wait(std::uint32_t slot);
  // A stream's wait is over. tag: of the note that it took; 0: none.
  void end_wait(std::uint32_t slot, std::uint32_t tag);

 private:
  struct Slot {
    int streams = 0;  // that wait
    Tags taken{};
    unsigned next = 0;  // index into `taken` of the oldest

    bool knows(std::uint32_t tag) const noexcept;
    void remember(std::uint32_t tag) noexcept;
  };
  bool is_empty(std::uint32_t slot) const noexcept {
    return pages_.notes[slot].load(std::memory_order_relaxed) == 0;
  }
  // The note for the CPU; 0: none. With mutex_ held.
  gpu::Note find(std::uint32_t slot) const noexcept;

  BoardPages& pages_;
  mutable Mutex<Rank::gpu_notes> mutex_;           // guards the next
  std::unordered_map<std::uint32_t, Slot> slots_;  // slots from which something was ever taken
};

}  // namespace zerohop::engine
