// Gives GPU memory of this process to others of its host.
#pragma once

#include <memory>
#include <utility>

#include "gpu/chunk_card.hpp"
#include "ipc/parcel.hpp"

namespace zerohop::engine {

static_assert(gpu::kCardNbytes <= ipc::Parcel::kMaxCard);

class GpuPacker : public ipc::Packer {
 public:
  explicit GpuPacker(std::shared_ptr<const gpu::Device> device) : device_(std::move(device)) {}

  ipc::Parcel pack(std::uint64_t address) const override {
    gpu::ChunkExport chunk = gpu::export_chunk(*device_, address);
    return {.begin = chunk.extent.begin,
            .end = chunk.extent.end,
            .card = gpu::to_card(chunk),
            .descriptor = std::move(chunk.descriptor)};
  }

 private:
  const std::shared_ptr<const gpu::Device> device_;
};

}  // namespace zerohop::engine
