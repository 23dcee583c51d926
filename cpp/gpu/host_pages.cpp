#include "gpu/host_pages.hpp"

#include <iterator>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {

std::vector<Extent> HostPages::reach(const std::shared_ptr<const Device>& device,
                                     const Extent& part, const Deadline& deadline) {
  if (const std::string reason = refusal_.reason(); !reason.empty()) throw RouteUnavailable(reason);
  std::vector<Extent> ranges;
  try {
    for (std::uint64_t at = part.begin; at < part.end; at = ranges.back().end) {
      ranges.push_back(reach_at(at, device, deadline));
    }
  } catch (const TransferTimeout& late) {  // resolved in a moment
    throw RouteUnavailable(std::string("the host's memory is not page-locked yet: ") + late.what());
  } catch (const Error& error) {
    const std::string reason =
        (use_ == PageUse::registers ? "the doorbell registers cannot be mapped for "
                                    : "the host's memory cannot be page-locked for ") +
        device->facts().device_name() + ": ";
    refusal_.set(reason + error.what());
    throw RouteUnavailable(reason + error.what(), error.code());
  }
  return ranges;
}

Extent HostPages::reach_at(std::uint64_t address, const std::shared_ptr<const Device>& device,
                           const Deadline& deadline) {
  {
    const std::lock_guard lock(mutex_);
    const auto after = locks_.upper_bound(address);
    if (after != locks_.begin()) {
      const Extent& known = std::prev(after)->second->extent();
      if (address < known.end) return known;
    }
  }
  auto found = PageLock::around(
      address, {.device = device, .owner = owner_, .whole = whole_, .use = use_}, deadline);
  if (!found.lock) return found.extent;
  const std::lock_guard lock(mutex_);
  locks_.try_emplace(found.extent.begin, std::move(found.lock));
  return found.extent;
}

std::uint64_t address_on(const Device& device, std::uint64_t address) {
  const DeviceGuard guard(device);
  driver::CudaAddress on_gpu = 0;
  driver::check_cuda(device.cuda(),
                     device.cuda().host_get_address(&on_gpu, reinterpret_cast<void*>(address), 0),
                     "cuMemHostGetDevicePointer");
  return on_gpu;
}

}  // namespace zerohop::gpu
