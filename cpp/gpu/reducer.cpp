#include "gpu/reducer.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/stream_wait.hpp"

namespace zerohop::gpu {

Reducer::Reducer(std::shared_ptr<const Device> device)
    : device_(std::move(device)), generation_(fork_generation()) {
  parts_->kernels = Kernels::load(device_);
  const DeviceGuard guard(*device_);
  parts_->stream = make_stream(device_->cuda());
  parts_->before = make_event(device_->cuda());
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
  if (!any_) {
    const driver::Cuda& cuda = device_->cuda();
    driver::check_cuda(cuda, cuda.event_record(parts_->before.get(), driver::kCudaLegacyStream),
                       "cuEventRecord in the default stream");
    driver::check_cuda(cuda, cuda.stream_wait_event(parts_->stream.get(), parts_->before.get(), 0),
                       "cuStreamWaitEvent");
  }
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
