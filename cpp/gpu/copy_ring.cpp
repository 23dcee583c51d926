#include "gpu/copy_ring.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {

CopyRing::CopyRing(std::shared_ptr<const Device> device, unsigned slots, std::size_t slot_nbytes)
    : device_(std::move(device)), generation_(fork_generation()) {
  const DeviceGuard guard(*device_);
  slots_ = std::make_unique<CopySlots>(device_->cuda(), slots, slot_nbytes);
}

CopyRing::~CopyRing() {
  if (generation_ == fork_generation()) {
    give_back(device_->ordinal(), destruction(device_, std::move(slots_)));
  } else {
    (void)slots_.release();  // CUDA does not survive fork()
  }
}

int CopyRing::start(unsigned slot, Direction direction, std::span<const Copy> copies) noexcept {
  try {
    const DeviceGuard guard(*device_);
    return start_all(slot, direction, copies);
  } catch (const CudaError& error) {
    return error.code();  // nothing was started
  }
}

int CopyRing::start_all(unsigned slot, Direction direction, std::span<const Copy> copies) noexcept {
  int error = 0;
  for (const Copy& copy : copies) {
    error = direction == Direction::to_host
                ? slots_->to_host(copy.host, copy.device, copy.nbytes)
                : slots_->to_device(copy.device, copy.host, copy.nbytes);
    if (error != 0) break;
  }
  const int marked = slots_->mark(slot);
  return error != 0 ? error : marked;
}

// Needs the guard: a query without a current context is an error, and a query in global capture
// mode invalidates a capture of the program.
int CopyRing::query(unsigned slot) noexcept {
  try {
    const DeviceGuard guard(*device_);
    return slots_->query(slot);
  } catch (const CudaError& error) {
    return error.code();
  }
}

}  // namespace zerohop::gpu
