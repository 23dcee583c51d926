#include "gpu/gpu_words.hpp"

#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_call.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/stream_wait.hpp"

namespace zerohop::gpu {
namespace {

using driver::check_cuda;

// The driver maps pages of this size: smaller allocations would share one.
constexpr std::uint64_t kPage = std::uint64_t{2} << 20;

}  // namespace

GpuWords::GpuWords(std::shared_ptr<const Device> device, std::uint64_t nbytes)
    : device_(std::move(device)), generation_(fork_generation()) {
  const std::uint64_t whole = (nbytes + kPage - 1) / kPage * kPage;
  driver::CudaAddress begin = 0;
  check_cuda(
      device_->cuda(), device_->cuda().memory_allocate(&begin, whole),
      "cuMemAlloc of " + std::to_string(whole) + " bytes on " + device_->facts().device_name());
  extent_ = {.begin = begin, .end = begin + whole};
}

std::shared_ptr<const GpuWords> GpuWords::create(std::shared_ptr<const Device> device,
                                                 std::uint64_t nbytes, const Deadline& deadline) {
  const DeviceGuard guard(*device);
  std::shared_ptr<const GpuWords> words(new GpuWords(device, nbytes));
  zero_memory(*words->device_, words->extent_, "words", deadline);
  return words;
}

GpuWords::~GpuWords() {
  if (generation_ != fork_generation()) return;  // CUDA does not survive fork()
  give_back_apart(device_->ordinal(), [device = device_, begin = extent_.begin] {
    try {
      const DeviceGuard guard(*device);
      (void)device->cuda().memory_free(begin);
    } catch (const CudaError&) {
      // The context is gone, as at process exit, and the memory with it.
    }
  });
}

}  // namespace zerohop::gpu
