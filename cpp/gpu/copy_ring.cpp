#include "gpu/copy_ring.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/report.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {

CopyRing::CopyRing(std::shared_ptr<const Device> device, unsigned slots, std::size_t slot_nbytes)
    : device_(std::move(device)), generation_(fork_generation()) {
  const DeviceGuard guard(*device_);
  pages_ = pin_pages(device_->cuda(), slots * slot_nbytes);
  stream_ = make_stream(device_->cuda());
  for (unsigned i = 0; i < slots; ++i) events_.push_back(make_event(device_->cuda()));
}

CopyRing::~CopyRing() {
  try {
    if (generation_ == fork_generation()) {
      const DeviceGuard guard(*device_);
      events_.clear();
      stream_.reset();
      pages_.reset();
      return;
    }
  } catch (const CudaError& error) {
    report(error.what());
  }
  // CUDA does not survive fork(), nor a context its end: what cannot be given back is left.
  for (Event& event : events_) (void)event.release();
  (void)stream_.release();
  (void)pages_.release();
}

int CopyRing::start(unsigned slot, Direction direction, std::span<const Copy> copies) noexcept {
  try {
    const DeviceGuard guard(*device_);
    return start_all(slot, direction, copies);
  } catch (const CudaError& error) {
    return error.code();
  }
}

// Also after an error the event stands for what was started before it.
int CopyRing::start_all(unsigned slot, Direction direction, std::span<const Copy> copies) noexcept {
  const driver::Cuda& cuda = device_->cuda();
  int error = 0;
  for (const Copy& copy : copies) {
    error = direction == Direction::to_host
                ? cuda.copy_to_host(copy.host, copy.device, copy.nbytes, stream_.get())
                : cuda.copy_to_device(copy.device, copy.host, copy.nbytes, stream_.get());
    if (error != 0) break;
  }
  const int marked = cuda.event_record(events_[slot].get(), stream_.get());
  return error != 0 ? error : marked;
}

int CopyRing::query(unsigned slot) noexcept {
  return device_->cuda().event_query(events_[slot].get());
}

}  // namespace zerohop::gpu
