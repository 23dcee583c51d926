#include "gpu/write_order.hpp"

#include "driver/cuda_call.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {

WriteOrder write_order(const DeviceFacts& facts, bool separate_paths) noexcept {
  if (separate_paths) return WriteOrder::read;
  if (facts.writes_ordering >= driver::kCudaScopeOwner) return WriteOrder::kept;
  return facts.flush_by_host ? WriteOrder::flush : WriteOrder::read;
}

void flush_writes(const Device& device) {
  const DeviceGuard guard(device);
  driver::check_cuda(device.cuda(),
                     device.cuda().flush_gpudirect_writes(driver::kCudaFlushCurrentContext,
                                                          driver::kCudaScopeOwner),
                     "cuFlushGPUDirectRDMAWrites on " + device.facts().device_name());
}

}  // namespace zerohop::gpu
