// GPU memory that zerohop allocates: physical memory behind a handle that can be passed to another
// process, and that adapters can access where the GPU supports it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/deadline.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

class Buffer {
 public:
  // Zeroed, aligned to the GPU's page size (2 MiB on today's GPUs), and accessible to all GPUs of
  // this process that can reach the device. With nbytes 0 nothing is mapped and the address is 0.
  // Throws CudaError, and TransferTimeout when other work keeps the GPU from zeroing it until
  // `deadline`.
  static std::shared_ptr<Buffer> create(std::shared_ptr<const Device> device, std::uint64_t nbytes,
                                        const Deadline& deadline);
  // Returns at once. The memory is freed when the GPU has finished its work so far: the program's
  // kernels may still use it.
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
