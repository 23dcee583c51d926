// GPU memory of another process of this host, mapped into this process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gpu/chunk_export.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

class PeerMemory {
 public:
  // Maps adjacent chunks for copies and kernels of `device`. The descriptors may be closed
  // afterwards. Throws CudaError: 217 where `device` cannot access the GPU that holds the memory,
  // 201 for cudaMalloc memory of this process, which needs no mapping.
  static std::shared_ptr<PeerMemory> map(std::shared_ptr<const Device> device,
                                         std::span<const ChunkExport> chunks);
  // A chunk of this process, without a descriptor: maps nothing, but gives `device` access to the
  // GPU that holds it. Throws CudaError (217: no access possible).
  static std::shared_ptr<PeerMemory> own(std::shared_ptr<const Device> device,
                                         std::shared_ptr<const Device> owner, const Extent& extent);
  // Our work on it must be done; the owner's need not be, and the owner may have freed it. Returns
  // at once: another thread unmaps it.
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // Translates the owner's address, which must lie in the chunks, to the local one.
  driver::CudaAddress at(std::uint64_t address) const noexcept;
  const Extent& extent() const noexcept { return extent_; }  // in the owner's addresses
  const Device& device() const noexcept { return *device_; }

 private:
  struct Pages;  // mapped by descriptor
  PeerMemory(std::shared_ptr<const Device> device, const Extent& extent);
  void open_handle(const ChunkExport& chunk);
  void map_pages(std::span<const ChunkExport> chunks);

  const std::shared_ptr<const Device> device_;
  std::shared_ptr<const Device> owner_;  // of this process's memory; null: another process's
  const unsigned generation_;            // of the process (fork)
  const Extent extent_;
  driver::CudaAddress begin_ = 0;
  std::unique_ptr<Pages> pages_;  // null: opened by handle
};

}  // namespace zerohop::gpu
