#include "peer_memory.hpp"

#include <dlfcn.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "base/error.hpp"
#include "call.hpp"
#include "gpu/allocation.hpp"
#include "gpu/copier.hpp"

namespace zerohop::mlx5sim {
namespace {

constexpr std::size_t kChunk = 512 << 10;  // bytes of pinned host memory, of 16 for each GPU

// Of the program itself, or of a library that it has loaded. Without it the program has no memory
// on GPUs, so nothing is loaded here.
std::shared_ptr<const driver::Cuda> driver_of_program() {
  constexpr const char* kLookup = "cuGetProcAddress_v2";
  void* lookup = ::dlsym(RTLD_DEFAULT, kLookup);
  if (lookup == nullptr) {
    void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr) return nullptr;
    lookup = ::dlsym(library, kLookup);
    ::dlclose(library);  // the program keeps it
  }
  return driver::fill_cuda(reinterpret_cast<driver::CudaGetProcAddress>(lookup)).cuda;
}

gpu::Allocation allocation_at(const driver::Cuda& cuda, std::uint64_t address) {
  try {
    return gpu::find_allocation(cuda, address);
  } catch (const CudaError&) {
    return {};  // CUDA is not initialised, or the GPU has failed
  }
}

// As dmesg(1) would say it.
[[noreturn]] void refuse(std::uint64_t address, std::uint64_t nbytes, const char* why, int error) {
  std::fprintf(stderr, "mlx5sim: %llu bytes of a GPU at %#llx are not registered: %s\n",
               static_cast<unsigned long long>(nbytes), static_cast<unsigned long long>(address),
               why);
  throw Refused{error};
}

}  // namespace

std::shared_ptr<driver::Copier> PeerMemory::copier(std::uint64_t address, std::uint64_t nbytes) {
  if (!cuda_) cuda_ = driver_of_program();
  if (!cuda_ || nbytes == 0 || address + nbytes < address) return nullptr;
  const gpu::Allocation found = allocation_at(*cuda_, address);
  if (found.kind == gpu::MemoryKind::unknown || found.kind == gpu::MemoryKind::pinned) {
    return nullptr;
  }
  if (!found.gpudirect_capable) {
    refuse(address, nbytes, "the driver does not open that memory to adapters", EFAULT);
  }
  if (address + nbytes > found.extent.end) {
    refuse(address, nbytes, "they go on behind the end of their allocation", EFAULT);
  }
  try {
    std::shared_ptr<driver::Copier>& copier = copiers_[found.ordinal];
    if (!copier) {
      copier = std::make_shared<gpu::Copier>(gpu::Device::open(cuda_, found.ordinal), kChunk);
    }
    return copier;
  } catch (const CudaError& error) {
    refuse(address, nbytes, error.what(), ENOMEM);
  }
}

}  // namespace zerohop::mlx5sim
