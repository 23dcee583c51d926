// A libcuda.so.1 of a fake GPU, for programs: what they call by name, beside what the lookup gives.
// As with driver 580, no processor can map its dma-bufs.
#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "fake_cuda.hpp"

namespace {

using zerohop::testing::FakeCuda;
namespace driver = zerohop::driver;

FakeCuda& gpu() {
  static auto* const made = new FakeCuda;  // used until exit
  return *made;
}

[[gnu::constructor]] void make() { gpu().exports_map = false; }

template <typename Copy>
driver::CudaResult copied(Copy copy) try {
  copy();
  return driver::kCudaSuccess;
} catch (const std::out_of_range&) {
  return driver::kCudaErrorInvalidValue;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default"))) driver::CudaResult

EXPORTED cuInit(unsigned flags) { return gpu().table()->init(flags); }
EXPORTED cuDriverGetVersion(int* version) { return gpu().table()->driver_get_version(version); }
EXPORTED cuDeviceGet(driver::CudaDevice* device, int ordinal) {
  return gpu().table()->device_get(device, ordinal);
}
EXPORTED cuDeviceGetName(char* name, int nbytes, driver::CudaDevice device) {
  return gpu().table()->device_get_name(name, nbytes, device);
}
EXPORTED cuDevicePrimaryCtxRetain(driver::CudaContext* context, driver::CudaDevice device) {
  return gpu().table()->primary_context_retain(context, device);
}
EXPORTED cuCtxSetCurrent(driver::CudaContext) { return driver::kCudaSuccess; }
EXPORTED cuGetErrorString(driver::CudaResult result, const char** text) {
  return gpu().table()->get_error_string(result, text);
}
EXPORTED cuMemcpyDtoH_v2(std::byte* to, driver::CudaAddress from, std::size_t nbytes) {
  return copied([&] { std::ranges::copy(gpu().copies.read(from, nbytes), to); });
}
EXPORTED cuMemcpyHtoD_v2(driver::CudaAddress to, const std::byte* from, std::size_t nbytes) {
  return copied([&] { gpu().copies.write(to, std::vector<std::byte>(from, from + nbytes)); });
}
