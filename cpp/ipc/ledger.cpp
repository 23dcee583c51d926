#include "ipc/ledger.hpp"

#include <mutex>
#include <utility>

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
  pages().words[slot].store(entry.serial);
  return entry;
}

// Sequentially consistent, as the claims are: either the visitor sees the word struck, or the owner
// sees the claim. The word first: who takes a window in asks whether it stands, so that none is
// missed whose key was read before.
void Ledger::strike(std::uint32_t slot, std::uint64_t key) noexcept {
  pages().words[slot].store(0);
  const std::uint64_t number = pages().strikes.load();
  pages().struck[number % kKept].store(key);
  pages().strikes.store(number + 1);
}

std::optional<std::vector<std::uint64_t>> Ledger::struck_since(const std::byte* pages,
                                                               std::uint64_t& seen) {
  const Pages& all = at(pages);
  const std::uint64_t now = all.strikes.load();
  const std::uint64_t before = std::exchange(seen, now);
  // One may be written over that is not counted yet.
  const auto kept = [before](std::uint64_t count) { return count - before < kKept; };
  if (!kept(now)) return std::nullopt;
  std::vector<std::uint64_t> keys;
  keys.reserve(now - before);
  for (std::uint64_t i = before; i != now; ++i) keys.push_back(all.struck[i % kKept].load());
  if (!kept(all.strikes.load())) return std::nullopt;
  return keys;
}

void Ledger::free(std::uint32_t slot) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(slot);
}

}  // namespace zerohop::ipc
