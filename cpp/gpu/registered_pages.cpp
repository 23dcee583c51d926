#include "gpu/registered_pages.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_call.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {

RegisteredPages::RegisteredPages(std::shared_ptr<const Device> device,
                                 std::shared_ptr<const void> owner, void* begin, std::size_t nbytes,
                                 const std::string& what, PageKind kind)
    : device_(std::move(device)),
      owner_(std::move(owner)),
      begin_(begin),
      generation_(fork_generation()) {
  if (!device_->facts().reaches_registered) {
    throw RouteUnavailable(device_->facts().device_name() +
                           " has other addresses for host memory than the CPU");
  }
  const DeviceGuard guard(*device_);
  const driver::Cuda& cuda = device_->cuda();
  driver::check_cuda(
      cuda,
      cuda.host_register(begin, nbytes,
                         driver::kCudaRegisterPortable | driver::kCudaRegisterMapped |
                             (kind == PageKind::registers ? driver::kCudaRegisterIoMemory : 0U)),
      "cuMemHostRegister of " + what);
}

// On another thread: the driver waits for the GPU, even for a kernel that waits for another.
RegisteredPages::~RegisteredPages() {
  if (generation_ != fork_generation()) return;  // CUDA does not survive fork()
  run_apart(device_->ordinal(), [device = device_, owner = owner_, begin = begin_] {
    try {
      const DeviceGuard guard(*device);
      (void)device->cuda().host_unregister(begin);
    } catch (const CudaError&) {
      // The context is gone, as at process exit.
    }
  });
}

}  // namespace zerohop::gpu
