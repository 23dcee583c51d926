// The driver that the simulated adapter finds in this program: that of a fake GPU, while there is
// one.
#include <string_view>

#include "driver/cuda.hpp"
#include "fake_cuda.hpp"

using zerohop::driver::CudaResult;
using zerohop::driver::kCudaSuccess;
using zerohop::testing::FakeCuda;

extern "C" __attribute__((visibility("default"))) CudaResult cuGetProcAddress_v2(const char* symbol,
                                                                                 void** function,
                                                                                 int, std::uint64_t,
                                                                                 int*) {
  *function = nullptr;
  if (!FakeCuda::exists()) return kCudaSuccess;
  const auto table = FakeCuda::in_use().table();
#define ZEROHOP_FIND(member, name, version, parameters) \
  if (std::string_view(symbol) == #name) *function = reinterpret_cast<void*>(table->member);
  ZEROHOP_CUDA_SYMBOLS(ZEROHOP_FIND)
#undef ZEROHOP_FIND
  return kCudaSuccess;
}
