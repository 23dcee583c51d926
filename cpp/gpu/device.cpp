#include "gpu/device.hpp"

#include <utility>

#include "base/fork.hpp"
#include "driver/cuda_call.hpp"

namespace zerohop::gpu {

std::shared_ptr<Device> Device::open(std::shared_ptr<const driver::Cuda> cuda, int ordinal) {
  driver::check_cuda(*cuda, cuda->init(0), "cuInit");
  driver::CudaDevice device = 0;
  driver::check_cuda(*cuda, cuda->device_get(&device, ordinal),
                     "cuDeviceGet of cuda:" + std::to_string(ordinal));
  DeviceFacts facts = ask_device(*cuda, device, ordinal);
  return std::shared_ptr<Device>(new Device(std::move(cuda), device, std::move(facts)));
}

Device::Device(std::shared_ptr<const driver::Cuda> cuda, driver::CudaDevice device,
               DeviceFacts facts)
    : cuda_(std::move(cuda)),
      device_(device),
      generation_(fork_generation()),
      facts_(std::move(facts)) {
  driver::check_cuda(*cuda_, cuda_->primary_context_retain(&context_, device_),
                     "cuDevicePrimaryCtxRetain of " + facts_.device_name());
}

Device::~Device() {
  // CUDA does not survive fork(): in a child there is nothing to release.
  if (generation_ != fork_generation()) return;
  // A failure is not reported: at process exit the driver may have shut down first.
  (void)cuda_->primary_context_release(device_);
}

}  // namespace zerohop::gpu
