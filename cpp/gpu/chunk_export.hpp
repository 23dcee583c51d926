// GPU memory exported to another process of this host: each chunk of a range with the handle by
// which that process maps it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/layout.hpp"
#include "base/unique_fd.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

struct ChunkExport {
  Extent extent;                // of the chunk, in its owner's addresses
  std::uint64_t buffer_id = 0;  // unique in the owner's process, never reused
  driver::CudaUuid gpu{};       // GPU that holds it
  // cuMemCreate memory is exported by descriptor; empty for cudaMalloc memory, exported by handle.
  UniqueFd descriptor;
  driver::CudaIpcHandle handle{};
};

// The chunk around one address. Throws what export_chunks() throws.
ChunkExport export_chunk(const Device& device, std::uint64_t address);

// All chunks that `range` touches, in address order. Throws RouteUnavailable with the reason why
// another process cannot map them; CudaError, RegistrationError (not mapped here).
std::vector<ChunkExport> export_chunks(const Device& device, const Extent& range);

}  // namespace zerohop::gpu
