// Owners of the driver's streams, events and pinned memory.
#pragma once

#include <memory>

#include "driver/cuda_call.hpp"

namespace zerohop::gpu {

// A failed free is not reported: at process exit the driver may have shut down first.
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
// The same with the highest priority: streams of different priority share no hardware channel with
// a kernel that waits, however few channels there are (CUDA_DEVICE_MAX_CONNECTIONS).
Stream make_urgent_stream(const driver::Cuda& cuda);
Event make_event(const driver::Cuda& cuda);  // without a time stamp

}  // namespace zerohop::gpu
