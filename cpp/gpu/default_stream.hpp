// The stream that CUDA programs use by default (the legacy default stream).
#pragma once

#include "base/deadline.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

// Waits for the work submitted so far to the device's default stream; false when the deadline
// passed first. Throws CudaError.
bool wait_default_stream(const Device& device, const Deadline& deadline);

}  // namespace zerohop::gpu
