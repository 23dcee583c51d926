#include "gpu/kernels.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/kernel_image.hpp"

namespace zerohop::gpu {
namespace {

using driver::check_cuda;

// One block for each multiprocessor of an H200 (66 reach 97 % of it, 264 no more); each leaves
// three quarters of its multiprocessor to the program.
constexpr unsigned kMostBlocks = 132;
constexpr unsigned kThreads = 512;
constexpr unsigned kWarpsInBlock = kThreads / 32;

}  // namespace

std::shared_ptr<const Kernels> Kernels::load(std::shared_ptr<const Device> device) {
  const auto image = kernel_image();
  if (image.empty()) {
    throw RouteUnavailable(
        "this build of zerohop has no GPU kernels, as there was no nvcc: install the CUDA toolkit "
        "(pip install nvidia-cuda-nvcc) and build again");
  }
  const driver::Cuda& cuda = device->cuda();
  const DeviceGuard guard(*device);
  std::shared_ptr<Kernels> kernels(new Kernels(device));
  check_cuda(cuda, cuda.module_load(&kernels->module_, image.data()),
             "cuModuleLoadData on " + device->facts().device_name());
  check_cuda(
      cuda,
      cuda.module_get_function(&kernels->copy_pieces_, kernels->module_, "zerohop_copy_pieces"),
      "cuModuleGetFunction");
  return kernels;
}

Kernels::~Kernels() {
  // CUDA does not survive fork(): in a child there is nothing to give back.
  if (module_ == nullptr || generation_ != fork_generation()) return;
  try {
    const DeviceGuard guard(*device_);
    (void)device_->cuda().module_unload(module_);
  } catch (const CudaError&) {
    // The context is gone, as at process exit, and the module with it.
  }
}

void Kernels::copy_pieces(driver::CudaAddress pieces, std::uint32_t count,
                          driver::CudaStream stream) const {
  if (count == 0) return;
  const unsigned blocks = std::min(kMostBlocks, (count + kWarpsInBlock - 1) / kWarpsInBlock);
  std::array<void*, 2> arguments{&pieces, &count};
  const driver::Cuda& cuda = device_->cuda();
  check_cuda(cuda,
             cuda.launch_kernel(copy_pieces_, blocks, 1, 1, kThreads, 1, 1, /*shared nbytes=*/0,
                                stream, arguments.data(), nullptr),
             "cuLaunchKernel of the copies");
}

}  // namespace zerohop::gpu
