#include "driver/cuda_call.hpp"

#include "base/error.hpp"

namespace zerohop::driver {
namespace {

// What to do about a CUresult. Null when the driver's own text says it all.
const char* cuda_remedy(CudaResult result) noexcept {
  switch (result) {
    case 1: return "an argument is outside what this driver or this memory allows";
    case 2: return "free GPU memory, or use smaller arrays";
    case 3: return "the process must call cuInit first, and not in a parent it forked from";
    case 100: return "no GPU is visible: check `nvidia-smi` and CUDA_VISIBLE_DEVICES";
    case 101: return "name a device that torch.cuda.device_count() counts";
    case 201:
      return "the thread has no current context: make the device current first; if the program has "
             "reset the device, make Endpoints and arrays anew";
    case 217: return "these two GPUs have no peer-to-peer path: see `nvidia-smi topo -p2p rw`";
    case 700:
    case 719: return "an earlier kernel broke this context: the process must be restarted";
    case 709:
      return "the program has destroyed or reset the context (cudaDeviceReset): make Endpoints and "
             "arrays anew";
    case 800: return "this user or container may not do it";
    case 801: return "this GPU, driver or kind of memory does not offer it";
    case 803: return "driver and libcuda.so.1 are of different versions: reboot or reinstall";
    default: return nullptr;
  }
}

std::string text_of(CudaResult (*get)(CudaResult, const char**), CudaResult result) {
  const char* text = nullptr;
  if (get(result, &text) != kCudaSuccess || text == nullptr) return "unknown CUresult";
  return text;
}

}  // namespace

void check_cuda(const Cuda& cuda, CudaResult result, std::string_view what) {
  if (result == kCudaSuccess) return;
  std::string message(what);
  message += ": " + text_of(cuda.get_error_name, result) + " (" + std::to_string(result) + "), " +
             text_of(cuda.get_error_string, result);
  if (const char* advice = cuda_remedy(result)) message.append("; ").append(advice);
  throw CudaError(message, result);
}

}  // namespace zerohop::driver
