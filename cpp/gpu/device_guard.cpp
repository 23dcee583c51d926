#include "gpu/device_guard.hpp"

#include "base/report.hpp"
#include "driver/cuda_call.hpp"

namespace zerohop::gpu {

DeviceGuard::DeviceGuard(const Device& device) : cuda_(device.cuda()) {
  if (const auto result = cuda_.context_push(device.context()); result != driver::kCudaSuccess) {
    driver::check_cuda(cuda_, result, "cuCtxPushCurrent of " + device.facts().device_name());
  }
  // While any thread captures in the global mode, allocations and other unordered calls fail and
  // spoil the capture: in the relaxed mode this thread does not count.
  if (cuda_.thread_exchange_capture_mode(&former_mode_) != driver::kCudaSuccess) {
    former_mode_ = driver::kCudaCaptureRelaxed;
  }
}

DeviceGuard::~DeviceGuard() {
  (void)cuda_.thread_exchange_capture_mode(&former_mode_);
  driver::CudaContext popped = nullptr;
  if (cuda_.context_pop(&popped) != driver::kCudaSuccess) {
    report("cuCtxPopCurrent failed; this thread keeps a CUDA context that it did not ask for");
  }
}

}  // namespace zerohop::gpu
