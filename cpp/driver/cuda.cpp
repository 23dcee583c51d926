#include "driver/cuda.hpp"

#include <utility>

#include "base/dynlib.hpp"

namespace zerohop::driver {
namespace {

// The first symbol that this driver lacks in the requested version, or null.
const char* fill(Cuda& cuda, CudaGetProcAddress get_proc_address) {
  // For a version above the driver's own the driver returns CUDA_ERROR_INVALID_VALUE, for an
  // unknown symbol success and a null function. Both mean "not here".
#define ZEROHOP_CUDA_FILL(member, symbol, version, parameters)                           \
  {                                                                                      \
    void* function = nullptr;                                                            \
    const CudaResult result = get_proc_address(#symbol, &function, version, 0, nullptr); \
    if (result != kCudaSuccess || function == nullptr) return #symbol;                   \
    cuda.member = reinterpret_cast<decltype(cuda.member)>(function);                     \
  }
  ZEROHOP_CUDA_SYMBOLS(ZEROHOP_CUDA_FILL)
#undef ZEROHOP_CUDA_FILL
  return nullptr;
}

}  // namespace

CudaLibrary fill_cuda(CudaGetProcAddress get_proc_address) {
  auto cuda = std::make_shared<Cuda>();
  const char* missing =
      get_proc_address != nullptr ? fill(*cuda, get_proc_address) : "cuGetProcAddress_v2";
  if (missing != nullptr) {
    return {nullptr, std::string("GPUs cannot be used because the NVIDIA driver lacks ") + missing +
                         ": install driver 525 (CUDA 12.0) or newer"};
  }
  return {std::move(cuda), ""};
}

CudaLibrary load_cuda(const char* soname) {
  const DynamicLibrary library(soname);
  if (!library) {
    return {nullptr, "GPUs cannot be used because " + std::string(soname) + " cannot be loaded (" +
                         library.reason() + "): install the NVIDIA driver"};
  }
  return fill_cuda(reinterpret_cast<CudaGetProcAddress>(library.find("cuGetProcAddress_v2")));
}

const CudaLibrary& libcuda() {
  static const auto* const library =
      new CudaLibrary(load_cuda("libcuda.so.1"));  // never destroyed: used until exit
  return *library;
}

}  // namespace zerohop::driver
