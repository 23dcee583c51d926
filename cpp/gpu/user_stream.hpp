// Streams of the program, which the driver alone knows.
#pragma once

#include <memory>

#include "base/deadline.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

// Whether the stream was made in the device's primary context; false for default streams.
bool is_of(const Device& device, driver::CudaStream stream);

// The ordinal of the GPU that the stream is of; of a default stream, the one that is current in
// this thread. Throws CudaError, RouteUnavailable (no GPU is current).
int ordinal_of(const driver::Cuda& cuda, driver::CudaStream stream);

// Throws RouteUnavailable unless the stream is one of the device's primary context, where every
// CUDA library makes them, and takes work now: not while it is captured into a graph. The caller
// has made the device current.
void check_stream(const Device& device, driver::CudaStream stream);

// Waits until the stream has done what it was given so far; false when the deadline came first.
// Throws what the others throw.
bool wait_user_stream(const std::shared_ptr<const driver::Cuda>& cuda, driver::CudaStream stream,
                      const Deadline& deadline);

}  // namespace zerohop::gpu
