// Makes a GPU's primary context current in this thread, and permits control calls during a graph
// capture of the program, for the guard's lifetime.
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
