#include "ipc/ledger.hpp"

namespace zerohop::ipc {

Ledger::Ledger() : pages_(kNbytes, Buffer::Others::only_read) {}

std::optional<LedgerEntry> Ledger::enter() {
  const std::lock_guard lock(mutex_);
  std::uint32_t slot = 0;
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  } else if (fresh_ < kSlots) {
    slot = fresh_++;
    free_.reserve(fresh_);  // so that free() need not allocate
  } else {
    return std::nullopt;
  }
  const LedgerEntry entry{.slot = slot, .serial = ++last_serial_};
  word(slot).store(entry.serial);
  return entry;
}

// Sequentially consistent, as the claims are: either the visitor sees the word struck, or the owner
// sees the claim.
void Ledger::strike(std::uint32_t slot) noexcept { word(slot).store(0); }

void Ledger::free(std::uint32_t slot) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(slot);
}

}  // namespace zerohop::ipc
