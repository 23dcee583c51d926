// Host memory, also mapped from another process, and registers, as GPUs of this process access
// them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/locks.hpp"
#include "base/refusal.hpp"
#include "gpu/page_lock.hpp"

namespace zerohop::gpu {

// Page-locked when GPUs first access it, until the object is destroyed. Thread-safe.
class HostPages {
 public:
  // owner: keeps `whole` mapped.
  HostPages(const Extent& whole, std::shared_ptr<const void> owner, PageUse use)
      : whole_(whole), owner_(std::move(owner)), use_(use) {}

  // Makes `part` accessible to `device`, at the CPU's addresses. Returns the ranges that no copy
  // may cross, in order and without gaps, around the part. Ranges that the program has page-locked
  // itself are reported as they are now. Throws RouteUnavailable with the reason; at once if it was
  // refused a moment ago.
  std::vector<Extent> reach(const std::shared_ptr<const Device>& device, const Extent& part,
                            const Deadline& deadline);
  // The same for all of it.
  void reach_all(const std::shared_ptr<const Device>& device, const Deadline& deadline) {
    (void)reach(device, whole_, deadline);
  }

 private:
  Extent reach_at(std::uint64_t address, const std::shared_ptr<const Device>& device,
                  const Deadline& deadline);

  const Extent whole_;
  const std::shared_ptr<const void> owner_;
  const PageUse use_;
  Refusal refusal_;
  Mutex<Rank::host_pages> mutex_;                                   // guards locks_
  std::map<std::uint64_t, std::shared_ptr<const PageLock>> locks_;  // by begin
};

// The device's address of the CPU's `address` in pages that it reaches. Throws CudaError.
std::uint64_t address_on(const Device& device, std::uint64_t address);

}  // namespace zerohop::gpu
