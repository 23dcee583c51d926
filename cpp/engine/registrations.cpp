#include "engine/registrations.hpp"

#include <algorithm>

namespace zerohop::engine {
int access_bits(const rdma::Device& device, bool writable) noexcept {
  if (!writable) return IBV_ACCESS_REMOTE_READ;
  const int atomics = device.has_atomics() ? int{IBV_ACCESS_REMOTE_ATOMIC} : 0;
  return IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | atomics;
}

std::shared_ptr<rdma::MemoryRegion> Registrations::find_or_create(const Extent& extent,
                                                                  bool writable, bool shared) {
  if (extent.begin == extent.end) return nullptr;
  const int access = access_bits(domain_->device(), writable);
  const std::lock_guard lock(mutex_);
  if (shared) {
    if (auto known = find(extent, access)) return known;
  }
  auto region = rdma::MemoryRegion::create(domain_, reinterpret_cast<void*>(extent.begin),
                                           extent.end - extent.begin, access);
  if (shared) {
    forget_expired();
    by_address_[extent.begin] = region;
  }
  return region;
}

std::shared_ptr<rdma::MemoryRegion> Registrations::find(const Extent& extent, int access) {
  // The nearest region that begins at or below the extent. One that begins further below might
  // cover it as well, but two overlapping registrations are rare and a second one is only a little
  // waste.
  auto after = by_address_.upper_bound(extent.begin);
  if (after == by_address_.begin()) return nullptr;
  auto region = std::prev(after)->second.lock();
  if (!region || region->access() != access) return nullptr;
  return extent.end <= region->address() + region->nbytes() ? region : nullptr;
}

void Registrations::forget_expired() {
  if (by_address_.size() < next_sweep_) return;
  std::erase_if(by_address_, [](const auto& entry) { return entry.second.expired(); });
  next_sweep_ = std::max<std::size_t>(64, 2 * by_address_.size());
}

}  // namespace zerohop::engine
