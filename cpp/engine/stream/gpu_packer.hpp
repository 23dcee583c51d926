// Exports GPU memory of this process to others of its host.
#pragma once

#include <memory>
#include <utility>

#include "gpu/chunk_handle.hpp"
#include "shm/exported_chunk.hpp"

namespace zerohop::engine {

static_assert(gpu::kHandleNbytes <= shm::ExportedChunk::kMaxHandle);

class GpuPacker : public shm::Packer {
 public:
  explicit GpuPacker(std::shared_ptr<const gpu::Device> device) : device_(std::move(device)) {}

  shm::ExportedChunk pack(std::uint64_t address) const override {
    gpu::ChunkExport chunk = gpu::export_chunk(*device_, address);
    return {.begin = chunk.extent.begin,
            .end = chunk.extent.end,
            .handle = gpu::to_handle(chunk),
            .descriptor = std::move(chunk.descriptor)};
  }

 private:
  const std::shared_ptr<const gpu::Device> device_;
};

}  // namespace zerohop::engine
