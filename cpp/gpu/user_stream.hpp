// Streams that the program created.
#pragma once

#include <memory>

#include "base/deadline.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

// Whether the stream was created in the device's primary context; false for default streams.
bool is_of(const Device& device, driver::CudaStream stream);

// The ordinal of the stream's GPU; for a default stream, of the GPU that is current in this thread.
// Throws CudaError, RouteUnavailable (no GPU is current).
int ordinal_of(const driver::Cuda& cuda, driver::CudaStream stream);

// Throws RouteUnavailable unless the stream belongs to the device's primary context, where every
// CUDA library creates them, and is not being captured into a graph. The caller has made the device
// current.
void check_stream(const Device& device, driver::CudaStream stream);
// The same for work that may be part of a graph: returns whether the stream is being captured.
// Throws RouteUnavailable for the legacy default stream while another stream is being captured.
bool check_capturable(const Device& device, driver::CudaStream stream);

// Waits for the work submitted to the stream so far; false when the deadline passed first. Throws
// what the functions above throw.
bool wait_user_stream(const std::shared_ptr<const driver::Cuda>& cuda, driver::CudaStream stream,
                      const Deadline& deadline);

}  // namespace zerohop::gpu
