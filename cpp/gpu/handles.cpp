#include "gpu/handles.hpp"

#include <string>

#include "driver/cuda_constants.hpp"

namespace zerohop::gpu {

PinnedPages pin_pages(const driver::Cuda& cuda, std::size_t nbytes) {
  void* pages = nullptr;
  driver::check_cuda(cuda, cuda.host_allocate(&pages, nbytes, driver::kCudaHostPortable),
                     "cuMemHostAlloc of " + std::to_string(nbytes) + " bytes");
  return PinnedPages(pages, {&cuda});
}

Stream make_stream(const driver::Cuda& cuda) {
  driver::CudaStream stream = nullptr;
  driver::check_cuda(cuda, cuda.stream_create(&stream, driver::kCudaStreamNonBlocking),
                     "cuStreamCreate");
  return Stream(stream, {&cuda});
}

Stream make_urgent_stream(const driver::Cuda& cuda) {
  int least = 0;
  int greatest = 0;
  driver::check_cuda(cuda, cuda.context_get_stream_priority_range(&least, &greatest),
                     "cuCtxGetStreamPriorityRange");
  driver::CudaStream stream = nullptr;
  driver::check_cuda(
      cuda, cuda.stream_create_with_priority(&stream, driver::kCudaStreamNonBlocking, greatest),
      "cuStreamCreateWithPriority");
  return Stream(stream, {&cuda});
}

Event make_event(const driver::Cuda& cuda) {
  driver::CudaEvent event = nullptr;
  driver::check_cuda(cuda, cuda.event_create(&event, driver::kCudaEventDisableTiming),
                     "cuEventCreate");
  return Event(event, {&cuda});
}

}  // namespace zerohop::gpu
