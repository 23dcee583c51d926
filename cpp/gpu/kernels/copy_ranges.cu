// A few ranges in one launch, each divided among the warps; without ranges, only the tail.
#include "gpu/kernels/copy.cuh"
#include "gpu/kernels/words.cuh"

using zerohop::gpu::FewRanges;
using zerohop::gpu::kWarp;

extern "C" __global__ void __launch_bounds__(zerohop::gpu::kMostThreads)
    zerohop_copy_ranges(FewRanges ranges, zerohop::gpu::Tail tail) {
  zerohop::gpu::begin();
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint64_t stride = gridDim.x * blockDim.x / kWarp * ranges.grain;
  for (unsigned r = 0; r < ranges.count; ++r) {
    const std::uint64_t nbytes = ranges.nbytes[r];
    for (std::uint64_t at = thread / kWarp * ranges.grain; at < nbytes; at += stride) {
      const std::uint64_t rest = nbytes - at;
      zerohop::gpu::copy(
          {ranges.from[r] + at, ranges.to[r] + at, rest < ranges.grain ? rest : ranges.grain});
    }
  }
  zerohop::gpu::finish(tail);
}
