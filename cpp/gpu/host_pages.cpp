#include "gpu/host_pages.hpp"

#include <iterator>
#include <string>
#include <utility>

#include "base/error.hpp"

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
        "the host's memory cannot be page-locked for " + device->facts().device_name() + ": ";
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
      address, {.device = device, .owner = owner_, .whole = whole_, .may_be_read_only = !writable_},
      deadline);
  if (!found.lock) return found.extent;
  const std::lock_guard lock(mutex_);
  locks_.try_emplace(found.extent.begin, std::move(found.lock));
  return found.extent;
}

}  // namespace zerohop::gpu
