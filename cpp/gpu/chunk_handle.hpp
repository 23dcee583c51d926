// A ChunkExport as bytes for another process of this host, beside its descriptor.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gpu/chunk_export.hpp"

namespace zerohop::gpu {

inline constexpr std::size_t kHandleNbytes = 112;
std::vector<std::byte> to_handle(const ChunkExport& chunk);
// descriptor: that came with it, or none. Throws ProtocolError.
ChunkExport from_handle(std::span<const std::byte> handle, UniqueFd descriptor);

}  // namespace zerohop::gpu
