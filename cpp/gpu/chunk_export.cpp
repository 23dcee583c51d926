#include "gpu/chunk_export.hpp"

#include <string>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/allocation.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/vmm.hpp"

namespace zerohop::gpu {
namespace {

using driver::check_cuda;

[[noreturn]] void refuse_kind(const std::string& why) {
  throw RouteUnavailable("another process cannot map this memory: " + why);
}

void export_descriptor(const Device& device, ChunkExport& chunk) {
  const driver::Cuda& cuda = device.cuda();
  driver::CudaAllocation handle = 0;
  check_cuda(cuda,
             cuda.memory_retain_allocation(&handle, reinterpret_cast<void*>(chunk.extent.begin)),
             "cuMemRetainAllocationHandle");
  const PhysicalMemory held(cuda, handle);
  int fd = -1;
  check_cuda(cuda, cuda.memory_export(&fd, handle, driver::kCudaHandleFd, 0),
             "cuMemExportToShareableHandle");
  chunk.descriptor = UniqueFd(fd);  // not UniqueFd::open: see export_dmabuf
}

void export_handle(const Device& device, ChunkExport& chunk) {
  const driver::Cuda& cuda = device.cuda();
  check_cuda(cuda, cuda.ipc_export(&chunk.handle, chunk.extent.begin), "cuIpcGetMemHandle");
}

ChunkExport export_allocation(const Device& device, const Allocation& allocation) {
  ChunkExport chunk;
  chunk.extent = allocation.extent;
  chunk.buffer_id = allocation.buffer_id;
  check_cuda(device.cuda(), device.cuda().device_get_uuid(&chunk.gpu, device.handle()),
             "cuDeviceGetUuid of " + device.facts().device_name());
  switch (allocation.kind) {
    case MemoryKind::vmm:
      if ((allocation.handle_types & driver::kCudaHandleFd) == 0) {
        refuse_kind(
            "it was made without a handle to share (cuMemCreate with requestedHandleTypes 0): use "
            "Endpoint.empty(device='cuda:N'), or a framework's option for sharable memory");
      }
      export_descriptor(device, chunk);
      break;
    case MemoryKind::plain:
      if (!allocation.legacy_ipc_capable) {
        refuse_kind("CUDA says that cudaMalloc memory of this GPU has no IPC handle");
      }
      export_handle(device, chunk);
      break;
    default:
      refuse_kind("it is " + std::string(kind_name(allocation.kind)) +
                  ", which has no handle to share: use cudaMalloc, or "
                  "Endpoint.empty(device='cuda:N')");
  }
  return chunk;
}

Allocation find_mapped(const Device& device, std::uint64_t address) {
  const Allocation allocation = find_allocation(device.cuda(), address);
  if (allocation.kind != MemoryKind::unknown && allocation.extent.end > address) return allocation;
  throw RegistrationError(
      "the array lies in GPU memory that is not mapped: it was freed, or belongs to another "
      "process");
}

}  // namespace

ChunkExport export_chunk(const Device& device, std::uint64_t address) {
  const DeviceGuard guard(device);
  return export_allocation(device, find_mapped(device, address));
}

std::vector<ChunkExport> export_chunks(const Device& device, const Extent& range) {
  const DeviceGuard guard(device);
  std::vector<ChunkExport> chunks;
  for (std::uint64_t at = range.begin; at < range.end; at = chunks.back().extent.end) {
    chunks.push_back(export_allocation(device, find_mapped(device, at)));
    if (chunks.size() > 1 && !(chunks.front().descriptor && chunks.back().descriptor)) {
      refuse_kind("the array lies across several allocations");
    }
  }
  return chunks;
}

}  // namespace zerohop::gpu
