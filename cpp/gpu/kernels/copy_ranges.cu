// A few ranges in one launch; without ranges, only the tail.
#include "gpu/kernels/copy.cuh"
#include "gpu/kernels/words.cuh"

using zerohop::gpu::FewRanges;

extern "C" __global__ void __launch_bounds__(zerohop::gpu::kMostThreads)
    zerohop_copy_ranges(FewRanges ranges, zerohop::gpu::Tail tail) {
  zerohop::gpu::begin();
  zerohop::gpu::copy_all(ranges);
  zerohop::gpu::finish(tail);
}
