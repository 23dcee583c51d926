// Which exposures of a process are valid: one word each, in pages that its clients map read-only.
//
// Slots are reused, serials never are. A client with (slot, serial) checks before every copy that
// it is still valid, while its claim shows the owner that it is accessing the memory (see
// hazards.hpp). The words are followed by the keys of the latest exposures that ended, so that a
// client finds what to release without scanning all its mappings.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/buffer.hpp"
#include "base/locks.hpp"

namespace zerohop::shm {

struct GenerationEntry {
  std::uint32_t slot;
  std::uint64_t serial;  // never 0
};

class GenerationTable {
 public:
  static constexpr std::uint32_t kSlots = 16384;
  using Word = std::atomic<std::uint64_t>;
  static constexpr std::uint32_t kKept = 4096;  // keys kept of ended exposures
  struct Pages {
    std::array<Word, kSlots> words;
    Word strikes;  // total so far; the n-th (from 0) is at n % kKept
    std::array<Word, kKept> struck;
  };
  static constexpr std::uint64_t kNbytes = sizeof(Pages);
  static_assert(Word::is_always_lock_free, "the words lie between processes");

  // Throws RegistrationError, also if clients could write to the pages.
  GenerationTable();

  int fd() const noexcept { return pages_.fd(); }

  std::optional<GenerationEntry> enter();  // nullopt: every slot is taken
  // No client starts using the slot, of the exposure with that key, any more; running accesses may
  // continue. Calls must not overlap.
  void strike(std::uint32_t slot, std::uint64_t key) noexcept;
  void free(std::uint32_t slot) noexcept;  // once no client accesses it

  static bool stands(const std::byte* pages, const GenerationEntry& entry) noexcept {
    return at(pages).words[entry.slot].load() == entry.serial;
  }
  // The keys of what ended since `seen`, which is advanced to now. nullopt: more than are kept, so
  // anything may have ended.
  static std::optional<std::vector<std::uint64_t>> struck_since(const std::byte* pages,
                                                                std::uint64_t& seen);

 private:
  static const Pages& at(const std::byte* pages) noexcept {
    return *reinterpret_cast<const Pages*>(pages);
  }
  Pages& pages() noexcept { return *reinterpret_cast<Pages*>(pages_.data()); }

  Buffer pages_;
  Mutex<Rank::generations> mutex_;
  std::vector<std::uint32_t> free_;
  std::uint32_t fresh_ = 0;  // slots from here on were never used
  std::uint64_t last_serial_ = 0;
};

}  // namespace zerohop::shm
