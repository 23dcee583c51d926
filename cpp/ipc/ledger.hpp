// Which exposures of a process stand: one word each, in pages that its visitors map read-only.
//
// A slot is used again, a serial never is. Who was told (slot, serial) asks before every copy
// whether it still stands, while its claim tells the owner that it is at work (see hazards.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/buffer.hpp"
#include "base/locks.hpp"

namespace zerohop::ipc {

struct LedgerEntry {
  std::uint32_t slot;
  std::uint64_t serial;  // never 0
};

class Ledger {
 public:
  static constexpr std::uint32_t kSlots = 16384;
  using Word = std::atomic<std::uint64_t>;
  static constexpr std::uint64_t kNbytes = kSlots * sizeof(Word);
  static_assert(Word::is_always_lock_free, "the words lie between processes");

  // Throws RegistrationError, also where visitors could write to the pages.
  Ledger();

  int fd() const noexcept { return pages_.fd(); }

  std::optional<LedgerEntry> enter();  // nullopt: every slot is taken
  // Nobody begins to use the slot any more; those at work may still be.
  void strike(std::uint32_t slot) noexcept;
  void free(std::uint32_t slot) noexcept;  // nobody is at work any more

  static bool stands(const std::byte* pages, const LedgerEntry& entry) noexcept {
    return reinterpret_cast<const Word*>(pages)[entry.slot].load() == entry.serial;
  }

 private:
  Word& word(std::uint32_t slot) noexcept { return reinterpret_cast<Word*>(pages_.data())[slot]; }

  Buffer pages_;
  Mutex<Rank::ledger> mutex_;
  std::vector<std::uint32_t> free_;
  std::uint32_t fresh_ = 0;  // slots from here on were never used
  std::uint64_t last_serial_ = 0;
};

}  // namespace zerohop::ipc
