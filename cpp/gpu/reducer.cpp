#include "gpu/reducer.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/stream_wait.hpp"

namespace zerohop::gpu {

Reducer::Reducer(std::shared_ptr<const Device> device)
    : device_(std::move(device)), generation_(fork_generation()) {
  parts_->kernels = Kernels::load(device_);
  const DeviceGuard guard(*device_);
  parts_->stream = make_stream(device_->cuda());
}

Reducer::~Reducer() {
  if (generation_ == fork_generation()) {
    give_back_apart(device_->ordinal(), destruction(device_, std::move(parts_)));
  } else {
    (void)parts_.release();  // CUDA does not survive fork(): leak instead of freeing
  }
}

void Reducer::enqueue(ReduceCall& call) {
  const DeviceGuard guard(*device_);
  parts_->kernels->reduce(call, parts_->stream.get());
  any_ = true;
}

void Reducer::wait(const Deadline& deadline) {
  if (!any_) return;
  const DeviceGuard guard(*device_);
  const std::string what = "a reduction on " + device_->facts().device_name();
  if (!wait_stream(*device_, parts_->stream.get(), what, deadline)) {
    throw TransferTimeout(what +
                          " was not done in time: other work keeps the GPU busy; wait for it, or "
                          "give a longer timeout");
  }
  any_ = false;
}

}  // namespace zerohop::gpu
