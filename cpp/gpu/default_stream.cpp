#include "gpu/default_stream.hpp"

#include <chrono>
#include <thread>

#include "driver/cuda_constants.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/handles.hpp"

namespace zerohop::gpu {

bool wait_default_stream(const Device& device, const Deadline& deadline) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds kSpin{100};  // then the CPU is left to others
  constexpr std::chrono::microseconds kNap{50};
  const driver::Cuda& cuda = device.cuda();
  const DeviceGuard guard(device);
  const Event event = make_event(cuda);
  driver::check_cuda(cuda, cuda.event_record(event.get(), driver::kCudaLegacyStream),
                     "cuEventRecord on the default stream of " + device.facts().device_name());
  const auto spin_until = Clock::now() + kSpin;
  for (;;) {
    const driver::CudaResult result = cuda.event_query(event.get());
    if (result != driver::kCudaErrorNotReady) {
      driver::check_cuda(cuda, result,
                         "the work in the default stream of " + device.facts().device_name());
      return true;
    }
    if (deadline.passed()) return false;
    if (Clock::now() > spin_until) std::this_thread::sleep_for(kNap);
  }
}

}  // namespace zerohop::gpu
