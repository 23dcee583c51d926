// A captured copy. Each of its blocks looks at the gate first: once that is closed and the GPU was
// idle, no replay touches the peer's memory, which may be unmapped.
#include "gpu/kernels/copy.cuh"
#include "gpu/kernels/words.cuh"

extern "C" __global__ void __launch_bounds__(zerohop::gpu::kMostThreads)
    zerohop_replayed_copy(zerohop::gpu::FewRanges ranges, std::uint64_t gate) {
  if (zerohop::gpu::glance(gate) == 0) zerohop::gpu::copy_all(ranges);
}
