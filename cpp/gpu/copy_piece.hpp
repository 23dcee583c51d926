// One of many copies that a kernel makes in a single launch.
#pragma once

#include <cstdint>

namespace zerohop::gpu {

struct CopyPiece {
  std::uint64_t from = 0;  // the GPU's own memory, a peer's, or pinned host memory
  std::uint64_t to = 0;
  std::uint64_t nbytes = 0;
};

}  // namespace zerohop::gpu
