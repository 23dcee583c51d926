#include "gpu/dmabuf.hpp"

#include <unistd.h>

#include <string>
#include <utility>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {

Dmabuf export_dmabuf(const Device& device, const Extent& range, DmabufMapping mapping) {
  const bool pcie = mapping == DmabufMapping::pcie;
  if (pcie && device.facts().driver < driver::kCudaDmabufMappingPcieMinimumDriver) {
    throw CudaError("dma-bufs mapped through PCIe need driver 570 (CUDA 12.8) or newer",
                    driver::kCudaErrorNotSupported);
  }
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = range.begin & ~(page - 1);
  const std::uint64_t end = (range.end + page - 1) & ~(page - 1);
  const std::string what = "cuMemGetHandleForAddressRange of " + std::to_string(end - begin) +
                           " bytes of " + device.facts().device_name();
  const DeviceGuard guard(device);
  int fd = -1;
  driver::check_cuda(
      device.cuda(),
      device.cuda().memory_export_range(&fd, begin, end - begin, driver::kCudaRangeHandleDmabuf,
                                        pcie ? driver::kCudaDmabufMappingPcie : 0),
      what);
  // Not UniqueFd::open, which would block fork(): the call may take long. A fork in between only
  // keeps the memory alive.
  return {UniqueFd(fd), range.begin - begin};
}

}  // namespace zerohop::gpu
