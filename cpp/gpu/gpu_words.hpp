// Words in GPU memory that report progress to this GPU, to others, and to processes of this host.
#pragma once

#include <cstdint>
#include <memory>

#include "base/deadline.hpp"
#include "base/layout.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

class GpuWords {
 public:
  // Zeroed. A separate allocation, because others can map only whole allocations. Throws CudaError,
  // and TransferTimeout when other work keeps the GPU from zeroing it until `deadline`.
  static std::shared_ptr<const GpuWords> create(std::shared_ptr<const Device> device,
                                                std::uint64_t nbytes, const Deadline& deadline);
  // Returns at once: the driver waits for the GPU before it frees.
  ~GpuWords();
  GpuWords(const GpuWords&) = delete;
  GpuWords& operator=(const GpuWords&) = delete;

  const std::shared_ptr<const Device>& device() const noexcept { return device_; }
  const Extent& extent() const noexcept { return extent_; }

 private:
  GpuWords(std::shared_ptr<const Device> device, std::uint64_t nbytes);

  const std::shared_ptr<const Device> device_;
  const unsigned generation_;  // of the process (fork)
  Extent extent_;
};

}  // namespace zerohop::gpu
