#include "engine/path/verbs/gpu_rings.hpp"

#include <string>
#include <utility>

#include "base/error.hpp"
#include "driver/ring_copies.hpp"
#include "gpu/peermem.hpp"

namespace zerohop::engine {
namespace {

constexpr std::size_t kChunk = 16 << 10;  // bytes of pinned host memory; a ring takes several

}  // namespace

GpuRings::GpuRings(std::shared_ptr<const gpu::Device> device, std::size_t nbytes,
                   const Deadline& deadline)
    : device_(std::move(device)),
      buffer_(gpu::Buffer::create(device_, nbytes, deadline)),
      copier_(std::make_shared<gpu::Copier>(device_, kChunk)) {}

void GpuRings::check(int error, const char* what) const {
  if (error == 0) return;
  throw CudaError(std::string("the rings of a queue on ") + device_->facts().device_name() +
                      " could not be " + what + ": the GPU has failed, or something keeps it busy",
                  error);
}

std::vector<std::byte> GpuRings::read(const void* from, std::size_t nbytes) const {
  std::vector<std::byte> bytes(nbytes);
  check(driver::RingCopies(copier_).read(bytes, static_cast<const std::byte*>(from)), "read");
  return bytes;
}

void GpuRings::fill(std::byte* to, std::size_t nbytes, std::span<const std::byte> entry) const {
  check(driver::RingCopies(copier_).fill(to, nbytes, entry), "written");
}

std::vector<rdma::UmemRange> GpuRings::show(std::size_t offset, std::size_t nbytes) {
  const gpu::DeviceFacts& facts = device_->facts();
  const std::uint64_t begin = buffer_->address();
  std::vector<rdma::UmemRange> ranges;
  if (facts.dmabuf) {
    if (!dmabuf_.fd) dmabuf_ = gpu::export_dmabuf(*device_, {begin, begin + buffer_->nbytes()});
    ranges.push_back({dmabuf_.offset + offset, nbytes, dmabuf_.fd.get()});
  }
  if (!gpu::find_peermem().empty()) ranges.push_back({begin + offset, nbytes, -1});
  if (!ranges.empty()) return ranges;
  throw RouteUnavailable("memory of " + facts.device_name() +
                         " is not open to adapters: the NVIDIA driver exports no dma-bufs (install "
                         "its open kernel modules), and nvidia-peermem is not loaded");
}

std::shared_ptr<rdma::MemoryRegion> GpuRings::register_part(
    const std::shared_ptr<rdma::ProtectionDomain>& domain, std::size_t offset, std::size_t nbytes) {
  using rdma::MemoryRegion;
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;
  std::byte* const begin = at(offset);
  const std::vector<rdma::UmemRange> ranges = show(offset, nbytes);
  const auto make = [&](const rdma::UmemRange& range) {
    if (range.dmabuf < 0) return MemoryRegion::create(domain, begin, nbytes, kAccess);
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    return MemoryRegion::create_dmabuf(domain, {range.dmabuf, range.address, nbytes, address},
                                       kAccess);
  };
  try {
    return make(ranges.front());
  } catch (const RegistrationError&) {
    if (ranges.size() == 1) throw;
    return make(ranges.back());
  }
}

}  // namespace zerohop::engine
