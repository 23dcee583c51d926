// The compiled kernels embedded in this library.
#pragma once

#include <cstddef>
#include <span>

namespace zerohop::gpu {

// A fat binary for cuModuleLoadData, for GPUs of compute capability 7.5 and newer. Empty when built
// without nvcc.
std::span<const std::byte> kernel_image() noexcept;

}  // namespace zerohop::gpu
