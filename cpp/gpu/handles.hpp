// Owners of streams, events and pinned memory of the driver.
#pragma once

#include <memory>

#include "driver/cuda_call.hpp"

namespace zerohop::gpu {

// A failure to free is not reported: at process exit the driver may have shut down first.
template <auto destroy>
struct Destroy {
  const driver::Cuda* cuda;
  void operator()(void* object) const noexcept { (void)(cuda->*destroy)(object); }
};
using PinnedPages = std::unique_ptr<void, Destroy<&driver::Cuda::host_free>>;
using Stream = std::unique_ptr<void, Destroy<&driver::Cuda::stream_destroy>>;
using Event = std::unique_ptr<void, Destroy<&driver::Cuda::event_destroy>>;
using Module = std::unique_ptr<void, Destroy<&driver::Cuda::module_unload>>;

// The caller has made the device current. All throw CudaError.
PinnedPages pin_pages(const driver::Cuda& cuda, std::size_t nbytes);  // for all GPUs
Stream make_stream(const driver::Cuda& cuda);  // not ordered with the default stream
// The same with the greatest priority: streams of another priority than a kernel that waits share
// no hardware channel with it, however few there are (CUDA_DEVICE_MAX_CONNECTIONS).
Stream make_urgent_stream(const driver::Cuda& cuda);
Event make_event(const driver::Cuda& cuda);  // without a time stamp

}  // namespace zerohop::gpu
