// Integers as <cstdint> has them on 64-bit Linux, which compilers at run time (NVRTC) come without.
#pragma once

// Of what kernels and the host both call.
#ifdef __CUDACC__
#define ZEROHOP_BOTH __host__ __device__
#else
#define ZEROHOP_BOTH
#endif
// Of what kernels call, and tests on a CPU.
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
