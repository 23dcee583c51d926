// The stream that CUDA programs use unless told otherwise (the legacy default stream).
#pragma once

#include "base/deadline.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

// Waits until the device has done what its default stream has been given so far; false when the
// deadline came first. Throws CudaError.
bool wait_default_stream(const Device& device, const Deadline& deadline);

}  // namespace zerohop::gpu
