// Words in the memory of a GPU by which it, others, and processes of this host tell each other how
// far they are.
#pragma once

#include <cstdint>
#include <memory>

#include "base/deadline.hpp"
#include "base/layout.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

class GpuWords {
 public:
  // Zeroed; an allocation of its own, as whoever maps it maps whole allocations. Throws CudaError,
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
