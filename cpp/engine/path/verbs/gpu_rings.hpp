// Memory of a GPU for the rings of a queue pair, as the host sees it: by copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/deadline.hpp"
#include "gpu/buffer.hpp"
#include "gpu/copier.hpp"
#include "gpu/dmabuf.hpp"
#include "rdma/devx.hpp"
#include "rdma/memory_region.hpp"

namespace zerohop::engine {

class GpuRings {
 public:
  // Zeroed. Throws CudaError, TransferTimeout.
  GpuRings(std::shared_ptr<const gpu::Device> device, std::size_t nbytes, const Deadline& deadline);

  std::byte* at(std::size_t offset = 0) const noexcept {
    return reinterpret_cast<std::byte*>(buffer_->address() + offset);
  }
  bool contains(std::uint64_t address) const noexcept {
    return address - buffer_->address() < buffer_->nbytes();
  }
  // For the software HCA, whose threads take one lane for each ring: there are more.
  const std::shared_ptr<gpu::Copier>& copier() const noexcept { return copier_; }
  // Both throw CudaError.
  std::vector<std::byte> read(const void* from, std::size_t nbytes) const;
  void fill(std::byte* to, std::size_t nbytes, std::span<const std::byte> entry) const;

  // That part in the ways in which an adapter may register it: as a dma-buf, and by the address,
  // which takes a kernel module (nvidia-peermem). Throws RouteUnavailable if there is neither,
  // CudaError.
  std::vector<rdma::UmemRange> show(std::size_t offset, std::size_t nbytes);
  // Likewise as a region that the adapter writes; throws RegistrationError, too.
  std::shared_ptr<rdma::MemoryRegion> register_part(
      const std::shared_ptr<rdma::ProtectionDomain>& domain, std::size_t offset,
      std::size_t nbytes);

 private:
  void check(int error, const char* what) const;

  const std::shared_ptr<const gpu::Device> device_;
  const std::shared_ptr<gpu::Buffer> buffer_;
  const std::shared_ptr<gpu::Copier> copier_;
  gpu::Dmabuf dmabuf_;  // of all of it, once shown
};

}  // namespace zerohop::engine
