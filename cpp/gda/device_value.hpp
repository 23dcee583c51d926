// Bytes in GPU memory that the program's kernels read, and the objects that must live as long as
// those kernels may run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/deadline.hpp"
#include "gpu/device.hpp"

namespace zerohop::gda {

class DeviceValue {
 public:
  using Kept = std::vector<std::shared_ptr<const void>>;

  // Throws CudaError.
  DeviceValue(std::shared_ptr<const gpu::Device> device, std::size_t nbytes, Kept kept);
  // Returns at once: everything is released when the GPU has finished its work so far.
  ~DeviceValue();
  DeviceValue(const DeviceValue&) = delete;
  DeviceValue& operator=(const DeviceValue&) = delete;

  // Call once. Throws CudaError, TransferTimeout (the GPU stays busy).
  void set(std::span<const std::byte> bytes, const Deadline& deadline);

  std::uint64_t address() const noexcept { return address_; }

 private:
  const std::shared_ptr<const gpu::Device> device_;
  const unsigned generation_;  // of the process (fork)
  Kept kept_;
  std::shared_ptr<const void> copy_;  // source and stream of set(); released with the rest
  driver::CudaAddress address_ = 0;
};

}  // namespace zerohop::gda
