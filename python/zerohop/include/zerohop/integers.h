// The integers of <cstdint> on 64-bit Linux, which run-time compilers (NVRTC) lack.
#pragma once

// For functions that kernels and the host call.
#ifdef __CUDACC__
#define ZEROHOP_BOTH __host__ __device__
#else
#define ZEROHOP_BOTH
#endif
// For functions that kernels call, and tests on a CPU.
#ifdef __CUDACC__
#define ZEROHOP_GPU __device__
#define ZEROHOP_CALLED __noinline__ __device__
#else
#define ZEROHOP_GPU
#define ZEROHOP_CALLED
#endif

namespace zerohop::device {

using u32 = unsigned int;
using u64 = unsigned long;
static_assert(sizeof(u32) == 4 && sizeof(u64) == 8, "64-bit Linux");

}  // namespace zerohop::device
