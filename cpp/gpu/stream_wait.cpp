#include "gpu/stream_wait.hpp"

#include <chrono>
#include <thread>

#include "driver/cuda_constants.hpp"
#include "gpu/handles.hpp"

namespace zerohop::gpu {

bool wait_stream(const Device& device, driver::CudaStream stream, const std::string& what,
                 const Deadline& deadline) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds kSpin{100};  // then the CPU is left to others
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

}  // namespace zerohop::gpu
