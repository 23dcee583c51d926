// How warps copy.
#pragma once

#include "gpu/copy_piece.hpp"
#include "gpu/tail.hpp"
#include "zerohop/copy.h"
#include "zerohop/team.cuh"

namespace zerohop::gpu {

constexpr unsigned kWarp = 32;

__device__ inline void copy(CopyPiece piece) {
  device::copy_bytes<device::Warp>(piece.to, piece.from, piece.nbytes);
}

// By all threads of all blocks: each range is divided among the warps.
__device__ inline void copy_all(const FewRanges& ranges) {
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint64_t stride = gridDim.x * blockDim.x / kWarp * ranges.grain;
  for (unsigned r = 0; r < ranges.count; ++r) {
    const std::uint64_t nbytes = ranges.nbytes[r];
    for (std::uint64_t at = thread / kWarp * ranges.grain; at < nbytes; at += stride) {
      const std::uint64_t rest = nbytes - at;
      copy({ranges.from[r] + at, ranges.to[r] + at, rest < ranges.grain ? rest : ranges.grain});
    }
  }
}

}  // namespace zerohop::gpu
