// GPU memory on its way to another process of this host: each chunk of a range with the handle by
// which that process maps it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/layout.hpp"
#include "base/unique_fd.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

struct ChunkExport {
  Extent extent;                // of the chunk, in addresses of its owner
  std::uint64_t buffer_id = 0;  // unique in the owner's process, never used again
  driver::CudaUuid gpu{};       // that it lies on
  // Memory of cuMemCreate goes by descriptor. Without one: memory of cudaMalloc, by handle.
  UniqueFd descriptor;
  driver::CudaIpcHandle handle{};
};

// The chunk around one address. Throws as export_chunks() does.
ChunkExport export_chunk(const Device& device, std::uint64_t address);

// All chunks that `range` touches, in the order of their addresses. Throws RouteUnavailable with
// the reason where another process cannot map them; CudaError, RegistrationError (not mapped here).
std::vector<ChunkExport> export_chunks(const Device& device, const Extent& range);

}  // namespace zerohop::gpu
