// Makes a GPU's primary context current in this thread, and lets control calls run beside a graph
// capture of the program, until the guard goes.
#pragma once

#include "gpu/device.hpp"

namespace zerohop::gpu {

class DeviceGuard {
 public:
  // Throws CudaError.
  explicit DeviceGuard(const Device& device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  const driver::Cuda& cuda_;
  driver::CudaCaptureMode former_mode_ = driver::kCudaCaptureRelaxed;
};

}  // namespace zerohop::gpu
