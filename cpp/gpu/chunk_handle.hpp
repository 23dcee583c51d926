// A ChunkExport serialized for another process of this host; its descriptor travels separately.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gpu/chunk_export.hpp"

namespace zerohop::gpu {

inline constexpr std::size_t kHandleNbytes = 112;
std::vector<std::byte> to_handle(const ChunkExport& chunk);
// descriptor: the one received with the handle, or none. Throws ProtocolError.
ChunkExport from_handle(std::span<const std::byte> handle, UniqueFd descriptor);

}  // namespace zerohop::gpu
