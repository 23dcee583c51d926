#include "gpu/replay_waits.hpp"

#include <new>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {
namespace {

// Pinned memory has the same address for the GPU: unified addressing.
template <typename Word>
driver::CudaAddress in_pinned(const Word& word) {
  return reinterpret_cast<driver::CudaAddress>(&word);
}

}  // namespace

ReplayWaits::ReplayWaits(const std::shared_ptr<const Device>& device, const Deadline& deadline)
    : words_(device, deadline), generation_(fork_generation()) {
  const DeviceGuard guard(*device);
  parts_->kernels = Kernels::load(device);
  parts_->pages = pin_pages(device->cuda(), sizeof(Pages));
  new (parts_->pages.get()) Pages();
}

ReplayWaits::~ReplayWaits() {
  if (generation_ != fork_generation()) {
    (void)parts_.release();  // CUDA does not survive fork()
  } else {
    give_back_apart(device()->ordinal(), destruction(device(), std::move(parts_)));
  }
}

ReplayWaits::Place ReplayWaits::take() {
  const auto place = places_.take();
  if (!place) {
    throw Error("CUDA graphs on " + device()->facts().device_name() +
                " contain too many waits: drop graphs that are no longer used");
  }
  line(*place).closed.store(0, std::memory_order_relaxed);
  line(*place).open.store(0, std::memory_order_relaxed);
  return *place;
}

void ReplayWaits::add(Place place, ReplayedWait wait, driver::CudaStream stream) const {
  if (wait.closed == 0) wait.closed = in_pinned(line(place).closed);
  if (wait.word == 0) {
    wait.word = in_pinned(line(place).open);
    wait.number = 1;
  }
  wait.fault = in_pinned(line(place).fault);
  wait.faults = in_pinned(pages().faults);
  parts_->kernels->replayed_wait(wait, stream);
}

}  // namespace zerohop::gpu
