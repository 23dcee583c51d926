// A GPU and its primary context, which all CUDA libraries of the process share.
#pragma once

#include <memory>

#include "gpu/device_facts.hpp"

namespace zerohop::gpu {

class Device {
 public:
  // Retains the primary context: its memory and streams live as long as this object. Throws
  // CudaError. The process must not be a fork of one that has used CUDA.
  static std::shared_ptr<Device> open(std::shared_ptr<const driver::Cuda> cuda, int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const driver::Cuda& cuda() const noexcept { return *cuda_; }
  const std::shared_ptr<const driver::Cuda>& table() const noexcept { return cuda_; }
  driver::CudaDevice handle() const noexcept { return device_; }
  driver::CudaContext context() const noexcept { return context_; }
  const DeviceFacts& facts() const noexcept { return facts_; }
  int ordinal() const noexcept { return facts_.ordinal; }

 private:
  Device(std::shared_ptr<const driver::Cuda> cuda, driver::CudaDevice device, DeviceFacts facts);

  std::shared_ptr<const driver::Cuda> cuda_;
  driver::CudaDevice device_;
  unsigned generation_;  // of the process (fork)
  driver::CudaContext context_ = nullptr;
  DeviceFacts facts_;
};

}  // namespace zerohop::gpu
