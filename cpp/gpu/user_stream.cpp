#include "gpu/user_stream.hpp"

#include <string>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/stream_wait.hpp"

namespace zerohop::gpu {
namespace {

// Default streams belong to whatever context is current: their handles are small numbers.
bool is_default(driver::CudaStream stream) { return stream <= driver::kCudaPerThreadStream; }

driver::CudaContext context_of(const driver::Cuda& cuda, driver::CudaStream stream) {
  driver::CudaContext context = nullptr;
  driver::check_cuda(cuda,
                     is_default(stream) ? cuda.context_get_current(&context)
                                        : cuda.stream_get_context(stream, &context),
                     "cuStreamGetCtx of stream=");
  if (context == nullptr) {
    throw RouteUnavailable(
        "stream= is a default stream, and no GPU is current in this thread: make one current "
        "(torch.cuda.set_device, cupy.cuda.Device(0).use()), or pass a created stream");
  }
  return context;
}

// Makes a context current for the guard's lifetime.
class ContextGuard {
 public:
  ContextGuard(const driver::Cuda& cuda, driver::CudaContext context) : cuda_(cuda) {
    driver::check_cuda(cuda, cuda.context_push(context), "cuCtxPushCurrent");
  }
  ~ContextGuard() {
    driver::CudaContext popped = nullptr;
    (void)cuda_.context_pop(&popped);
  }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  const driver::Cuda& cuda_;
};

enum class Capture { none, active, implied };  // implied: of another stream, by the default one

Capture capture_of(const driver::Cuda& cuda, driver::CudaStream stream) {
  int capturing = 0;
  const driver::CudaResult result = cuda.stream_is_capturing(stream, &capturing);
  if (result >= driver::kCudaErrorCaptureFirst && result <= driver::kCudaErrorCaptureLast) {
    return Capture::implied;
  }
  driver::check_cuda(cuda, result, "cuStreamIsCapturing of stream=");
  return capturing != 0 ? Capture::active : Capture::none;
}

void check_own(const Device& device, driver::CudaStream stream) {
  if (is_default(stream) || context_of(device.cuda(), stream) == device.context()) return;
  throw RouteUnavailable("stream= is not a stream of " + device.facts().device_name() +
                         ", where the array is, or it has a context of its own: pass one made on "
                         "that GPU");
}

}  // namespace

bool is_of(const Device& device, driver::CudaStream stream) {
  driver::CudaContext context = nullptr;
  return !is_default(stream) &&
         device.cuda().stream_get_context(stream, &context) == driver::kCudaSuccess &&
         context == device.context();
}

int ordinal_of(const driver::Cuda& cuda, driver::CudaStream stream) {
  driver::check_cuda(cuda, cuda.init(0), "cuInit");
  const ContextGuard guard(cuda, context_of(cuda, stream));
  driver::CudaDevice device = 0;
  driver::check_cuda(cuda, cuda.context_get_device(&device), "cuCtxGetDevice");
  return device;  // handles are ordinals (CUDA Driver API, cuDeviceGet)
}

void check_stream(const Device& device, driver::CudaStream stream) {
  check_own(device, stream);
  if (capture_of(device.cuda(), stream) == Capture::none) return;
  throw RouteUnavailable(
      "stream= is being captured into a CUDA graph, and this call cannot become part of one: by "
      "p2p from or to an array on a GPU it could (Peer.route says why it is not p2p); make it "
      "outside the capture");
}

bool check_capturable(const Device& device, driver::CudaStream stream) {
  check_own(device, stream);
  const Capture found = capture_of(device.cuda(), stream);
  if (found != Capture::implied) return found == Capture::active;
  throw RouteUnavailable(
      "stream= is the default stream, and another stream is being captured into a CUDA graph: pass "
      "a stream that was created, or make the call outside the capture");
}

bool wait_user_stream(const std::shared_ptr<const driver::Cuda>& cuda, driver::CudaStream stream,
                      const Deadline& deadline) {
  const auto device = Device::open(cuda, ordinal_of(*cuda, stream));
  const DeviceGuard guard(*device);
  check_stream(*device, stream);
  return wait_stream(*device, stream, "the work in stream=", deadline);
}

}  // namespace zerohop::gpu
