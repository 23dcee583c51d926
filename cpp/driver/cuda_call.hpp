// CUDA driver calls return a CUresult. Only this function turns it into a CudaError.
#pragma once

#include <string_view>

#include "driver/cuda.hpp"

namespace zerohop::driver {

// Throws CudaError("<what>: <name> (<code>), <driver's words>; <remedy>") unless result is success.
void check_cuda(const Cuda& cuda, CudaResult result, std::string_view what);

}  // namespace zerohop::driver
