// The functions of FakeCuda's table that load and launch kernels: those of gpu::Kernels.
#pragma once

#include "driver/cuda.hpp"

namespace zerohop::testing {

driver::CudaResult module_load(driver::CudaModule* module, const void* image);
driver::CudaResult module_unload(driver::CudaModule module);
driver::CudaResult module_get_function(driver::CudaFunction* function, driver::CudaModule module,
                                       const char* name);
driver::CudaResult launch_kernel(const driver::CudaLaunch* launch, driver::CudaFunction function,
                                 void** arguments, void** options);

}  // namespace zerohop::testing
