// Bounded waits for a stream.
#pragma once

#include <string>

#include "base/deadline.hpp"
#include "base/layout.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

// Waits for the work submitted to `stream` so far; false when the deadline passed first. what:
// names the work in messages. The caller has made the device current. Throws CudaError.
bool wait_stream(const Device& device, driver::CudaStream stream, const std::string& what,
                 const Deadline& deadline);

// Zeroes [extent.begin, extent.end). what: names the memory in messages. As above; throws
// TransferTimeout when other work delays it beyond `deadline`.
void zero_memory(const Device& device, const Extent& extent, const std::string& what,
                 const Deadline& deadline);

// Waits without bound for all work of the GPU, in any stream: so call it on another thread. Like
// cudaFree, it would invalidate a running capture (CUDA Driver API, cuCtxSynchronize); the driver
// then refuses, and this retries later. The caller has made the device current.
void wait_until_idle(const Device& device);

}  // namespace zerohop::gpu
