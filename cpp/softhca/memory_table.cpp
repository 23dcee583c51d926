#include "softhca/memory_table.hpp"

#include "base/random.hpp"

namespace zerohop::softhca {

void Pins::release(MemoryRegion& region) noexcept {
  // Release: the memory accesses of this step happen before dereg_mr returns. Afterwards `region`
  // is not accessed, except that notify_all passes its address to the kernel.
  if (region.pins.fetch_sub(1, std::memory_order_release) == 1) region.pins.notify_all();
}

bool Pins::adopt(Pins& other) noexcept {
  if (count_ + other.count_ > kMost) return false;
  while (other.count_ > 0) regions_[count_++] = other.regions_[--other.count_];
  return true;
}

void MemoryTable::add(MemoryRegion& region) {
  std::lock_guard guard(mutex_);
  std::uint32_t key = random_u32();
  while (key == 0 || regions_.contains(key)) key = random_u32();
  regions_.emplace(key, &region);
  region.lkey = region.rkey = region.handle = key;
}

void MemoryTable::remove(MemoryRegion& region) noexcept {
  {
    std::lock_guard guard(mutex_);
    regions_.erase(region.lkey);
  }
  for (std::uint32_t pins; (pins = region.pins.load(std::memory_order_acquire)) != 0;) {
    region.pins.wait(pins, std::memory_order_acquire);
  }
}

Place MemoryTable::pin(std::uint32_t key, const ibv_pd* domain, std::uint64_t address,
                       std::uint64_t nbytes, int access, Pins& pins) noexcept {
  // Scatter/gather lists often name one region many times; it is pinned once.
  MemoryRegion* region = pins.count_ > 0 ? pins.regions_[pins.count_ - 1] : nullptr;
  const bool pinned = region != nullptr && region->lkey == key;
  if (!pinned) {
    if (pins.count_ == Pins::kMost) return {};
    std::lock_guard guard(mutex_);
    const auto found = regions_.find(key);
    if (found == regions_.end()) return {};
    region = found->second;
    region->pins.fetch_add(1, std::memory_order_relaxed);  // ordered by the mutex
    pins.regions_[pins.count_++] = region;
  }
  const bool allowed = region->pd == domain && (region->access & access) == access &&
                       region->covers(address, nbytes);
  return allowed ? region->at(address) : Place{};
}

bool MemoryTable::allows(std::uint32_t key, const ibv_pd* domain, std::uint64_t address,
                         std::uint64_t nbytes, int access) noexcept {
  Pins pins;
  return static_cast<bool>(pin(key, domain, address, nbytes, access, pins));
}

std::size_t MemoryTable::size() const noexcept {
  std::lock_guard guard(mutex_);
  return regions_.size();
}

}  // namespace zerohop::softhca
