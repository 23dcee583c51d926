#include "gpu/peer_memory.hpp"

#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/vmm.hpp"

namespace zerohop::gpu {
namespace {

using driver::check_cuda;

std::string name_of(const Extent& extent, const Device& device) {
  return std::to_string(extent.end - extent.begin) + " bytes of another process for " +
         device.facts().device_name();
}

PhysicalMemory import_physical(const driver::Cuda& cuda, const UniqueFd& descriptor,
                               const std::string& what) {
  driver::CudaAllocation handle = 0;
  // The driver takes the descriptor in place of a pointer.
  void* const os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.get()));
  check_cuda(cuda, cuda.memory_import(&handle, os_handle, driver::kCudaHandleFd),
             "cuMemImportFromShareableHandle of " + what);
  return {cuda, handle};
}

}  // namespace

struct PeerMemory::Pages {
  Pages(const driver::Cuda& cuda, std::uint64_t nbytes, const std::string& what)
      : addresses(cuda, nbytes, what) {}

  AddressRange addresses;
  std::vector<MappedMemory> mapped;  // keeps the physical memory; its handles are closed at once
};

PeerMemory::PeerMemory(std::shared_ptr<const Device> device, const Extent& extent)
    : device_(std::move(device)), generation_(fork_generation()), extent_(extent) {}

std::shared_ptr<PeerMemory> PeerMemory::map(std::shared_ptr<const Device> device,
                                            std::span<const ChunkExport> chunks) {
  const DeviceGuard guard(*device);
  const Extent extent{chunks.front().extent.begin, chunks.back().extent.end};
  std::shared_ptr<PeerMemory> memory(new PeerMemory(std::move(device), extent));
  if (chunks.front().descriptor) {
    memory->map_pages(chunks);
  } else {
    memory->open_handle(chunks.front());
  }
  return memory;
}

std::shared_ptr<PeerMemory> PeerMemory::own(std::shared_ptr<const Device> device,
                                            std::shared_ptr<const Device> owner,
                                            const Extent& extent) {
  if (device->ordinal() != owner->ordinal()) {
    const DeviceGuard guard(*device);
    const driver::Cuda& cuda = device->cuda();
    const driver::CudaResult result = cuda.context_enable_peer_access(owner->context(), 0);
    if (result != driver::kCudaErrorPeerAccessAlready) {
      check_cuda(cuda, result, "cuCtxEnablePeerAccess of " + name_of(extent, *device));
    }
  }
  std::shared_ptr<PeerMemory> memory(new PeerMemory(std::move(device), extent));
  memory->owner_ = std::move(owner);
  memory->begin_ = extent.begin;
  return memory;
}

void PeerMemory::open_handle(const ChunkExport& chunk) {
  const driver::Cuda& cuda = device_->cuda();
  check_cuda(cuda, cuda.ipc_open(&begin_, chunk.handle, driver::kCudaIpcLazyPeerAccess),
             "cuIpcOpenMemHandle of " + name_of(extent_, *device_));
}

void PeerMemory::map_pages(std::span<const ChunkExport> chunks) {
  const driver::Cuda& cuda = device_->cuda();
  const std::string what = name_of(extent_, *device_);
  auto pages = std::make_unique<Pages>(cuda, extent_.end - extent_.begin, what);
  for (const ChunkExport& chunk : chunks) {
    const PhysicalMemory physical = import_physical(cuda, chunk.descriptor, what);
    const std::uint64_t at = pages->addresses.begin() + (chunk.extent.begin - extent_.begin);
    const std::uint64_t nbytes = chunk.extent.end - chunk.extent.begin;
    pages->mapped.emplace_back(cuda, at, nbytes, physical, what);
  }
  const driver::CudaMemoryAccess access{{driver::kCudaLocationDevice, device_->ordinal()},
                                        driver::kCudaAccessReadWrite};
  check_cuda(
      cuda, cuda.memory_set_access(pages->addresses.begin(), pages->addresses.nbytes(), &access, 1),
      "cuMemSetAccess of " + what);
  begin_ = pages->addresses.begin();
  pages_ = std::move(pages);
}

PeerMemory::~PeerMemory() {
  if (owner_) return;
  Pages* const pages = pages_.release();
  // CUDA does not survive fork(): in a child there is nothing to free.
  if (generation_ != fork_generation() || (pages == nullptr && begin_ == 0)) return;
  run_apart(device_->ordinal(), [device = device_, begin = begin_, pages]() noexcept {
    try {
      const DeviceGuard guard(*device);
      if (pages == nullptr) (void)device->cuda().ipc_close(begin);
      delete pages;
    } catch (const CudaError&) {
      // The context is gone, as at process exit, and the mapping with it.
    }
  });
}

driver::CudaAddress PeerMemory::at(std::uint64_t address) const noexcept {
  return begin_ + (address - extent_.begin);
}

}  // namespace zerohop::gpu
