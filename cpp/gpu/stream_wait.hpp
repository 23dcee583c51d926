// Waiting for a stream without being held up for longer than wanted.
#pragma once

#include <string>

#include "base/deadline.hpp"
#include "base/layout.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

// Waits until `stream` has done what it has been given so far; false when the deadline came first.
// what: the work, for messages. The caller has made the device current. Throws CudaError.
bool wait_stream(const Device& device, driver::CudaStream stream, const std::string& what,
                 const Deadline& deadline);

// Zeroes [extent.begin, extent.end). what: the memory, for messages. As above; throws
// TransferTimeout when other work keeps the GPU from it until `deadline`.
void zero_memory(const Device& device, const Extent& extent, const std::string& what,
                 const Deadline& deadline);

// Waits for all that the GPU was given, whichever stream it is in; for ever, so on a thread apart.
// Like cudaFree, this spoils a capture under way (CUDA Driver API, cuCtxSynchronize); the driver
// refuses, and is asked again later. The caller has made the device current.
void wait_until_idle(const Device& device);

}  // namespace zerohop::gpu
