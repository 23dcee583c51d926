#include "shm/generation_table.hpp"

#include <mutex>
#include <utility>

namespace zerohop::shm {

GenerationTable::GenerationTable() : pages_(kNbytes, Buffer::Others::only_read) {}

std::optional<GenerationEntry> GenerationTable::enter() {
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
  const GenerationEntry entry{.slot = slot, .serial = ++last_serial_};
  pages().words[slot].store(entry.serial);
  return entry;
}

// Sequentially consistent, as the claims are: either the client sees the struck word, or the owner
// sees the claim. Strike the word before counting: a client that stores a mapping checks the word,
// so a key ended before its last count cannot be missed.
void GenerationTable::strike(std::uint32_t slot, std::uint64_t key) noexcept {
  pages().words[slot].store(0);
  const std::uint64_t number = pages().strikes.load();
  pages().struck[number % kKept].store(key);
  pages().strikes.store(number + 1);
}

std::optional<std::vector<std::uint64_t>> GenerationTable::struck_since(const std::byte* pages,
                                                                        std::uint64_t& seen) {
  const Pages& all = at(pages);
  const std::uint64_t now = all.strikes.load();
  const std::uint64_t before = std::exchange(seen, now);
  // An entry not yet counted may be overwritten.
  const auto kept = [before](std::uint64_t count) { return count - before < kKept; };
  if (!kept(now)) return std::nullopt;
  std::vector<std::uint64_t> keys;
  keys.reserve(now - before);
  for (std::uint64_t i = before; i != now; ++i) keys.push_back(all.struck[i % kKept].load());
  if (!kept(all.strikes.load())) return std::nullopt;
  return keys;
}

void GenerationTable::free(std::uint32_t slot) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(slot);
}

}  // namespace zerohop::shm
