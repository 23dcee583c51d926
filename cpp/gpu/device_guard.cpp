#include "gpu/device_guard.hpp"

#include "base/report.hpp"
#include "driver/cuda_call.hpp"

namespace zerohop::gpu {

DeviceGuard::DeviceGuard(const Device& device) : cuda_(device.cuda()) {
  if (const auto result = cuda_.context_push(device.context()); result != driver::kCudaSuccess) {
    driver::check_cuda(cuda_, result, "cuCtxPushCurrent of " + device.facts().device_name());
  }
  // While any thread captures in global mode, allocations and other unordered calls fail and
  // invalidate the capture. Relaxed mode exempts this thread.
  if (cuda_.thread_exchange_capture_mode(&former_mode_) != driver::kCudaSuccess) {
    former_mode_ = driver::kCudaCaptureRelaxed;
  }
}

DeviceGuard::~DeviceGuard() {
  (void)cuda_.thread_exchange_capture_mode(&former_mode_);
  driver::CudaContext popped = nullptr;
  if (cuda_.context_pop(&popped) != driver::kCudaSuccess) {
    report("cuCtxPopCurrent failed; a CUDA context stays current in this thread");
  }
}

}  // namespace zerohop::gpu
