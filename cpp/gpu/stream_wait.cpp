#include "gpu/stream_wait.hpp"

#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/handles.hpp"

namespace zerohop::gpu {

bool wait_stream(const Device& device, driver::CudaStream stream, const std::string& what,
                 const Deadline& deadline) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds kSpin{100};  // then sleep between polls
  constexpr std::chrono::microseconds kNap{50};
  const driver::Cuda& cuda = device.cuda();
  const Event event = make_event(cuda);
  driver::check_cuda(cuda, cuda.event_record(event.get(), stream), "cuEventRecord behind " + what);
  const auto spin_until = Clock::now() + kSpin;
  for (;;) {
    const driver::CudaResult result = cuda.event_query(event.get());
    if (result != driver::kCudaErrorNotReady) {
      driver::check_cuda(cuda, result, what);
      return true;
    }
    if (deadline.passed()) return false;
    if (Clock::now() > spin_until) std::this_thread::sleep_for(kNap);
  }
}

void zero_memory(const Device& device, const Extent& extent, const std::string& what,
                 const Deadline& deadline) {
  const driver::Cuda& cuda = device.cuda();
  const std::string zeroing = "zeroing " + what + " on " + device.facts().device_name();
  const Stream stream = make_stream(cuda);
  driver::check_cuda(
      cuda, cuda.memory_set(extent.begin, 0, extent.end - extent.begin, stream.get()), zeroing);
  if (wait_stream(device, stream.get(), zeroing, deadline)) return;
  throw TransferTimeout(zeroing +
                        " was not done in time: a kernel keeps the GPU busy; wait for it, or give "
                        "the Endpoint a longer timeout");
}

void wait_until_idle(const Device& device) {
  constexpr std::chrono::milliseconds kNap{10};
  for (;;) {
    const driver::CudaResult result = device.cuda().context_synchronize();
    if (result < driver::kCudaErrorCaptureFirst || result > driver::kCudaErrorCaptureLast) return;
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace zerohop::gpu
