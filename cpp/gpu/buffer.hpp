// GPU memory that zerohop allocates itself: physical memory behind a handle that another process
// can be given, and that adapters may reach where the GPU lets them.
#pragma once

#include <cstdint>
#include <memory>

#include "base/deadline.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

class Buffer {
 public:
  // Zeroed, at a multiple of the GPU's page size (2 MiB on today's), and open to all GPUs of this
  // process that reach the device. nbytes 0 maps nothing: the address is 0. Throws CudaError, and
  // TransferTimeout when other work keeps the GPU from zeroing it until `deadline`.
  static std::shared_ptr<Buffer> create(std::shared_ptr<Device> device, std::uint64_t nbytes,
                                        const Deadline& deadline);
  // Returns at once. The memory goes when the GPU has done what it was given before: kernels of the
  // program may still use it.
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::uint64_t address() const noexcept;
  std::uint64_t nbytes() const noexcept { return nbytes_; }

 private:
  struct Mapping;

  Buffer(std::uint64_t nbytes, std::unique_ptr<Mapping> mapping);

  const std::uint64_t nbytes_;
  const unsigned generation_;  // of the process (fork)
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace zerohop::gpu
