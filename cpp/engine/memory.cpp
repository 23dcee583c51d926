#include "engine/memory.hpp"

#include <utility>

#include "base/error.hpp"

namespace zerohop::engine {

Memory::Memory(EndpointId endpoint, Layout layout, std::shared_ptr<const Pinned> pinned,
               bool writable, std::string device,
               std::shared_ptr<const RegistrationChoice> registration)
    : endpoint_(endpoint),
      layout_(std::move(layout)),
      lease_(std::make_shared<Lease>()),
      writable_(writable),
      device_(std::move(device)),
      registration_(std::move(registration)) {
  lease_->pinned = std::move(pinned);
}

Memory Memory::slice(std::span<const Index> indices) const {
  Memory part = *this;
  part.layout_ = apply_index(layout_, indices);
  return part;
}

void Memory::close() noexcept {
  std::shared_ptr<const Pinned> last;  // deregistration, which may wait, happens outside the lock
  const std::lock_guard lock(lease_->mutex);
  last = std::move(lease_->pinned);
}

bool Memory::closed() const noexcept {
  const std::lock_guard lock(lease_->mutex);
  return lease_->pinned == nullptr;
}

std::shared_ptr<const Pinned> Memory::pinned() const {
  const std::lock_guard lock(lease_->mutex);
  if (lease_->pinned) return lease_->pinned;
  throw RegistrationError("this memory is closed, or its Endpoint is: register the array again");
}

RemoteMemory Memory::remote() const {
  const auto pinned = this->pinned();
  RemoteMemory remote;
  remote.endpoint = endpoint_;
  remote.layout = layout_;
  remote.access = writable_ ? kRemoteRead | kRemoteWrite : kRemoteRead;
  remote.device = device_;
  if (pinned->region) {
    remote.rkey = pinned->region->rkey();
    remote.begin = pinned->region->address();
    remote.end = remote.begin + pinned->region->nbytes();
    const bool atomics = (pinned->region->access() & IBV_ACCESS_REMOTE_ATOMIC) != 0;
    if (writable_ && !atomics) remote.access |= kRemoteNoAtomics;
  }
  return remote;
}

}  // namespace zerohop::engine
