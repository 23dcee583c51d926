#include "fake_kernels.hpp"

#include <cstring>

#include "fake_cuda.hpp"

namespace zerohop::testing {

using driver::CudaResult;
using driver::kCudaErrorInvalidContext;
using driver::kCudaErrorInvalidValue;
using driver::kCudaSuccess;

CudaResult module_load(driver::CudaModule* module, const void* image) {
  FakeCuda& fake = FakeCuda::in_use();
  if (fake.fails("module_load")) return fake.error;
  if (!FakeCuda::has_context()) return kCudaErrorInvalidContext;
  *module = const_cast<void*>(image);
  ++fake.modules;
  return kCudaSuccess;
}

CudaResult module_unload(driver::CudaModule) {
  --FakeCuda::in_use().modules;
  return kCudaSuccess;
}

CudaResult module_get_function(driver::CudaFunction* function, driver::CudaModule module,
                               const char* name) {
  if (FakeCuda::in_use().fails("module_get_function")) return FakeCuda::in_use().error;
  if (std::strcmp(name, "zerohop_copy_pieces") != 0) return kCudaErrorInvalidValue;
  *function = module;
  return kCudaSuccess;
}

CudaResult launch_kernel(driver::CudaFunction, unsigned blocks, unsigned, unsigned,
                         unsigned threads, unsigned, unsigned, unsigned, driver::CudaStream stream,
                         void** arguments, void**) {
  FakeCuda& fake = FakeCuda::in_use();
  if (fake.fails("launch_kernel")) return fake.error;
  if (!FakeCuda::has_context()) return kCudaErrorInvalidContext;
  if (blocks == 0 || threads % 32 != 0) return kCudaErrorInvalidValue;
  return fake.copies.pieces(*static_cast<driver::CudaAddress*>(arguments[0]),
                            *static_cast<std::uint32_t*>(arguments[1]), stream);
}

}  // namespace zerohop::testing
