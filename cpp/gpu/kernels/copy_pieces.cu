// Many copies in one launch: each warp copies one piece.
#include "gpu/kernels/copy.cuh"
#include "gpu/kernels/words.cuh"

using zerohop::gpu::CopyPiece;
using zerohop::gpu::kWarp;

// The list may lie in pinned host memory: a warp reads 24 bytes of it per piece.
// tail.done 0: another launch of the same transfer follows.
extern "C" __global__ void __launch_bounds__(zerohop::gpu::kMostThreads)
    zerohop_copy_pieces(const CopyPiece* pieces, unsigned count, zerohop::gpu::Tail tail) {
  zerohop::gpu::begin();
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned warps = gridDim.x * blockDim.x / kWarp;
  for (unsigned i = thread / kWarp; i < count; i += warps) {
    zerohop::gpu::copy(pieces[i]);
  }
  if (tail.done != 0) zerohop::gpu::finish(tail);
}
