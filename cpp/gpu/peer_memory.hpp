// GPU memory of another process of this host, mapped into this one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gpu/chunk_export.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

class PeerMemory {
 public:
  // Maps chunks that follow one another without a gap, for copies and kernels of `device`. The
  // descriptors may be closed afterwards. Throws CudaError: 217 where the GPU that the memory is on
  // cannot be reached by `device`, 201 for cudaMalloc memory of this very process, which
  // needs no mapping.
  static std::shared_ptr<PeerMemory> map(std::shared_ptr<const Device> device,
                                         std::span<const ChunkExport> chunks);
  // A chunk of this very process, without a descriptor: nothing is mapped, but `device` is given
  // access to the GPU that it is on. Throws CudaError (217: it cannot be).
  static std::shared_ptr<PeerMemory> own(std::shared_ptr<const Device> device,
                                         std::shared_ptr<const Device> owner, const Extent& extent);
  // All work on it must be done. That of the owner, who may have freed it, is not concerned.
  // Returns at once: it is unmapped by a thread of its own.
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // Where an address of the owner is here. It must be one of the chunks'.
  driver::CudaAddress at(std::uint64_t address) const noexcept;
  const Extent& extent() const noexcept { return extent_; }  // in addresses of the owner
  const Device& device() const noexcept { return *device_; }

 private:
  struct Pages;  // by descriptor
  PeerMemory(std::shared_ptr<const Device> device, const Extent& extent);
  void open_handle(const ChunkExport& chunk);
  void map_pages(std::span<const ChunkExport> chunks);

  const std::shared_ptr<const Device> device_;
  std::shared_ptr<const Device> owner_;  // of memory of this process; null: of another
  const unsigned generation_;            // of the process (fork)
  const Extent extent_;
  driver::CudaAddress begin_ = 0;
  std::unique_ptr<Pages> pages_;  // null: opened by handle
};

}  // namespace zerohop::gpu
