// A ChunkExport as bytes for another process of this host, beside its descriptor.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gpu/chunk_export.hpp"

namespace zerohop::gpu {

inline constexpr std::size_t kCardNbytes = 112;
std::vector<std::byte> to_card(const ChunkExport& chunk);
// descriptor: that came with it, or none. Throws ProtocolError.
ChunkExport from_card(std::span<const std::byte> card, UniqueFd descriptor);

}  // namespace zerohop::gpu
