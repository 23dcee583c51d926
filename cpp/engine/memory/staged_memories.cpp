#include "engine/memory/staged_memories.hpp"

#include <span>

#include "base/random.hpp"
#include "shm/local_client.hpp"

namespace zerohop::engine {

std::shared_ptr<const StagedMemories::Right> StagedMemories::open(const Extent& extent,
                                                                  bool writable) {
  std::uint64_t key = 0;
  while (key == 0) fill_random(std::as_writable_bytes(std::span(&key, 1)));
  return std::make_shared<const Right>(shared_from_this(), key, extent, writable);
}

void StagedMemories::bind(const Right& right, const std::shared_ptr<const Registration>& memory) {
  const std::lock_guard lock(mutex_);
  entries_[right.key()] = {right.extent(), right.writable(), memory, right.borrowed_};
}

StagedMemories::Right::~Right() { end(); }

void StagedMemories::Right::end() const noexcept {
  const std::lock_guard lock(of_->mutex_);
  of_->entries_.erase(key_);
}

bool StagedMemories::Right::await(const Deadline& deadline) const noexcept {
  return shm::await_copies([&] { return borrowed_->load() == 0; }, deadline);
}

std::shared_ptr<const Registration> StagedMemories::borrow(std::uint64_t key) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  auto memory = found->second.memory.lock();
  if (!memory) return nullptr;
  const Registration* const borrowed = memory.get();
  const auto give_back = [memory = std::move(memory),
                          count = found->second.borrowed](const Registration*) mutable noexcept {
    memory.reset();  // before the waiting thread continues
    count->fetch_sub(1);
  };
  found->second.borrowed->fetch_add(1);
  return {borrowed, give_back};
}

std::shared_ptr<const Registration> StagedMemories::find(std::uint64_t key, const Extent& extent,
                                                         bool writes) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  const Entry& entry = found->second;
  const bool inside = extent.begin <= extent.end && entry.extent.begin <= extent.begin &&
                      extent.end <= entry.extent.end;
  return inside && (entry.writable || !writes) ? entry.memory.lock() : nullptr;
}

}  // namespace zerohop::engine
