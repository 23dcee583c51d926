// How a warp copies a piece.
#pragma once

#include "gpu/copy_piece.hpp"
#include "zerohop/copy.h"
#include "zerohop/team.cuh"

namespace zerohop::gpu {

constexpr unsigned kWarp = 32;

__device__ inline void copy(CopyPiece piece) {
  device::copy_bytes<device::Warp>(piece.to, piece.from, piece.nbytes);
}

}  // namespace zerohop::gpu
