#include "engine/memory/host_registrations.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace zerohop::engine {
int access_bits(const rdma::Device& device, bool writable) noexcept {
  if (!writable) return IBV_ACCESS_REMOTE_READ;
  const int atomics = device.has_atomics() ? int{IBV_ACCESS_REMOTE_ATOMIC} : 0;
  return IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | atomics;
}

std::shared_ptr<const Regions> HostRegistrations::find_or_create(const Extent& extent,
                                                                 bool writable, bool shared,
                                                                 const Backing& backing) {
  if (extent.begin == extent.end) return nullptr;
  if (!shared) return create(extent, writable, backing);
  if (auto known = find(extent, writable)) return known;
  const PendingRegistrations::Claim claim(pending_, {.extent = extent, .rights = writable},
                                          Deadline::after(kRegistrationPatience));
  if (auto known = find(extent, writable)) return known;  // created by another thread
  auto regions = create(extent, writable, backing);
  publish(extent, regions);
  return regions;
}

std::shared_ptr<const Regions> HostRegistrations::create(const Extent& extent, bool writable,
                                                         const Backing& backing) const {
  auto regions = std::make_shared<Regions>();
  for (const auto& rail : rails_) {
    if (rail->gone()) continue;
    const auto domain = rail->domain();
    regions->set(rail->index(),
                 rdma::MemoryRegion::create(domain, reinterpret_cast<void*>(extent.begin),
                                            extent.end - extent.begin,
                                            access_bits(domain->device(), writable)));
  }
  if (regions->empty()) {
    throw RegistrationError(
        "no device of this Endpoint is left to register memory with: make a "
        "new Endpoint");
  }
  if (exposures_ && backing.owner) {
    regions->set_exposure(
        exposures_->expose({.begin = extent.begin, .end = extent.end, .writable = writable},
                           {.memfd = backing.memfd}, backing.owner));
  }
  live_->add(regions);
  return regions;
}

std::shared_ptr<const Regions> HostRegistrations::find(const Extent& extent, bool writable) const {
  std::shared_ptr<const Regions> regions;  // released, which may deregister, without the lock
  const std::lock_guard lock(mutex_);
  // The nearest region that begins at or below the extent. One that begins further below might
  // cover it as well, but overlapping registrations are rare and a second one wastes little.
  auto after = by_address_.upper_bound(extent.begin);
  if (after == by_address_.begin()) return nullptr;
  regions = std::prev(after)->second.lock();
  if (!regions || regions->writable() != writable) return nullptr;
  return extent.end <= regions->covered().end ? regions : nullptr;
}

void HostRegistrations::publish(const Extent& extent,
                                const std::shared_ptr<const Regions>& regions) {
  const std::lock_guard lock(mutex_);
  forget_expired();
  by_address_[extent.begin] = regions;
}

void HostRegistrations::forget_expired() {
  if (by_address_.size() < next_sweep_) return;
  std::erase_if(by_address_, [](const auto& entry) { return entry.second.expired(); });
  next_sweep_ = std::max<std::size_t>(64, 2 * by_address_.size());
}

}  // namespace zerohop::engine
