#include "gpu/default_stream.hpp"

#include "driver/cuda_constants.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/stream_wait.hpp"

namespace zerohop::gpu {

bool wait_default_stream(const Device& device, const Deadline& deadline) {
  const DeviceGuard guard(device);
  return wait_stream(device, driver::kCudaLegacyStream,
                     "the work in the default stream of " + device.facts().device_name(), deadline);
}

}  // namespace zerohop::gpu
