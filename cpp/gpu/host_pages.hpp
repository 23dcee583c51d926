// An array in the host's memory, or a mapping of another process's, as GPUs of this process reach
// it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/locks.hpp"
#include "base/refusal.hpp"
#include "gpu/page_lock.hpp"

namespace zerohop::gpu {

// Page-locked where GPUs first reach it, and for as long as the object lives. Any thread.
class HostPages {
 public:
  // owner: keeps `whole` mapped. writable: GPUs write there, too.
  HostPages(const Extent& whole, std::shared_ptr<const void> owner, bool writable)
      : whole_(whole), owner_(std::move(owner)), writable_(writable) {}

  // Has `device` reach `part`, at the CPU's addresses. Returns the ranges that no copy may lie
  // across: in order, without gaps, around the part. Of what the program has locked by itself they
  // tell how it is now. Throws RouteUnavailable with the reason: at once, where it was refused a
  // moment ago.
  std::vector<Extent> reach(const std::shared_ptr<const Device>& device, const Extent& part,
                            const Deadline& deadline);

 private:
  Extent reach_at(std::uint64_t address, const std::shared_ptr<const Device>& device,
                  const Deadline& deadline);

  const Extent whole_;
  const std::shared_ptr<const void> owner_;
  const bool writable_;
  Refusal refusal_;
  Mutex<Rank::host_pages> mutex_;                                   // guards the next
  std::map<std::uint64_t, std::shared_ptr<const PageLock>> locks_;  // by begin
};

}  // namespace zerohop::gpu
