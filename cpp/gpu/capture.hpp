// Streams of the program that are being captured into CUDA graphs.
#pragma once

#include <memory>

#include "driver/cuda.hpp"
#include "gpu/device.hpp"
#include "gpu/handles.hpp"

namespace zerohop::gpu {

// For reasons in messages: false also when the driver does not say.
bool is_captured(const driver::Cuda& cuda, driver::CudaStream stream) noexcept;

// Keeps `what` as long as the graph into which the stream is being captured, what is instantiated
// from it, and their launches; then it is destroyed on another thread. The caller has made the
// device current. Throws CudaError.
void keep_with_graph(const std::shared_ptr<const Device>& device, driver::CudaStream stream,
                     std::shared_ptr<const void> what);

// The work that has been captured in a stream so far.
class CapturePoint {
 public:
  // The caller has made the device current. Throws CudaError.
  CapturePoint(std::shared_ptr<const Device> device, driver::CudaStream stream);
  ~CapturePoint();
  CapturePoint(const CapturePoint&) = delete;
  CapturePoint& operator=(const CapturePoint&) = delete;

  // What is enqueued in `stream` from now on follows it, as part of the same graph. Throws
  // RouteUnavailable: the capture has ended, or is not that of `stream`.
  void precede(driver::CudaStream stream) const;

 private:
  const std::shared_ptr<const Device> device_;
  const unsigned generation_;  // of the process (fork)
  std::unique_ptr<Event> event_ = std::make_unique<Event>();
};

}  // namespace zerohop::gpu
