#include "gda/device_value.hpp"

#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_call.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/handles.hpp"
#include "gpu/stream_wait.hpp"

namespace zerohop::gda {

using driver::check_cuda;

DeviceValue::DeviceValue(std::shared_ptr<const gpu::Device> device, std::size_t nbytes, Kept kept)
    : device_(std::move(device)), generation_(fork_generation()), kept_(std::move(kept)) {
  kept_.push_back(std::make_shared<const gpu::KernelsWait>());  // released last
  const driver::Cuda& cuda = device_->cuda();
  const gpu::DeviceGuard guard(*device_);
  check_cuda(cuda, cuda.memory_allocate(&address_, nbytes),
             "cuMemAlloc for kernels on " + device_->facts().device_name());
}

void DeviceValue::set(std::span<const std::byte> bytes, const Deadline& deadline) {
  const driver::Cuda& cuda = device_->cuda();
  const std::string what = "the arguments of kernels on " + device_->facts().device_name();
  const gpu::DeviceGuard guard(*device_);
  struct Parts {
    gpu::PinnedPages source;
    gpu::Stream stream;
  };
  auto parts =
      std::make_unique<Parts>(Parts{gpu::pin_pages(cuda, bytes.size()), gpu::make_stream(cuda)});
  std::memcpy(parts->source.get(), bytes.data(), bytes.size());
  check_cuda(cuda,
             cuda.copy_to_device(address_, parts->source.get(), bytes.size(), parts->stream.get()),
             "cuMemcpyHtoD of " + what);
  const bool copied = gpu::wait_stream(*device_, parts->stream.get(), what, deadline);
  if (copied) {
    copy_ = std::shared_ptr<const Parts>(std::move(parts));
    return;
  }
  (void)parts.release();  // the copy may still read it
  throw TransferTimeout(what + " could not be copied in time: a kernel keeps the GPU busy");
}

DeviceValue::~DeviceValue() {
  if (generation_ != fork_generation()) {
    // CUDA does not survive fork(): leak instead of freeing.
    new auto(std::move(kept_));
    new auto(std::move(copy_));
    return;
  }
  gpu::run_when_idle(device_, [device = device_, address = address_, copy = std::move(copy_),
                               kept = std::move(kept_)]() mutable {
    for (auto& each : kept) each.reset();  // in this order: KernelsWait comes last
    gpu::give_back_apart(device->ordinal(), [device, address, copy = std::move(copy)]() mutable {
      try {
        const gpu::DeviceGuard guard(*device);
        (void)device->cuda().memory_free(address);
        copy.reset();
      } catch (const CudaError&) {  // the memory is gone with its context
        gpu::keep_for_good(std::move(copy));
      }
    });
  });
}

}  // namespace zerohop::gda
