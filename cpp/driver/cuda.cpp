#include "driver/cuda.hpp"

#include <cstdint>

#include "base/dynlib.hpp"

namespace zerohop::driver {
namespace {

// cuGetProcAddress_v2 (driver 12.0 and newer) is the one symbol that dlsym looks up.
using GetProcAddress = CudaResult (*)(const char* symbol, void** function, int version,
                                      std::uint64_t flags, int* status);

// The first symbol that this driver does not have in the version asked for, or null.
const char* fill(Cuda& cuda, GetProcAddress get_proc_address) {
  // A version above the driver's own is answered with CUDA_ERROR_INVALID_VALUE, an unknown symbol
  // with success and a null function: both mean "not here".
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

CudaLibrary load_cuda(const char* soname) {
  const DynamicLibrary library(soname);
  if (!library) {
    return {nullptr, "GPUs cannot be used because " + std::string(soname) + " cannot be loaded (" +
                         library.reason() + "): install the NVIDIA driver"};
  }
  const auto get_proc_address =
      reinterpret_cast<GetProcAddress>(library.find("cuGetProcAddress_v2"));
  const char* missing = "cuGetProcAddress_v2";
  auto cuda = std::make_shared<Cuda>();
  if (get_proc_address != nullptr) missing = fill(*cuda, get_proc_address);
  if (missing != nullptr) {
    return {nullptr, "GPUs cannot be used because " + std::string(soname) + " lacks " + missing +
                         ": install NVIDIA driver 525 (CUDA 12.0) or newer"};
  }
  return {std::move(cuda), ""};
}

const CudaLibrary& libcuda() {
  static const CudaLibrary library = load_cuda("libcuda.so.1");
  return library;
}

}  // namespace zerohop::driver
