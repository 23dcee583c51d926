// Page-locked memory of the host, which copy engines and kernels reach.
#pragma once

#include <cstdint>
#include <memory>

#include "base/deadline.hpp"
#include "base/layout.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

// The driver locks a page once, and small arrays share pages: so each lock is known in the whole
// process by its address, and whoever needs those pages has a part in it.
class PageLock {
 public:
  struct Wish {
    std::shared_ptr<const Device> device;  // GPUs like that one reach the pages
    std::shared_ptr<const void> owner;     // keeps `whole` mapped
    Extent whole;
    bool may_be_read_only = false;  // GPUs write nothing there
  };
  // What GPUs reach around an address: at the CPU's address, in copies that stay inside.
  struct Found {
    std::shared_ptr<const PageLock> lock;  // null: the program has locked it, and may unlock it
    Extent extent;
  };
  // A lock that is there, or a fresh one: of the whole pages of `whole`, one block of kBlock at a
  // time. Takes 0.1 to 0.2 ms for each MiB; waits, until `deadline`, for threads that lock or
  // unlock just there. Throws RouteUnavailable with the reason, CudaError.
  static Found around(std::uint64_t address, const Wish& wish, const Deadline& deadline);

  // The GPUs must have done what touches the pages. The last part in a lock ends it, on a thread
  // apart: the driver waits for the GPU. Until then they stay mapped.
  ~PageLock();
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;

  const Extent& extent() const noexcept { return extent_; }

  static std::uint64_t all_nbytes();  // locked by this process now

  // Large, so that few copies are cut, and small beside what fits into a second.
  static constexpr std::uint64_t kBlock = std::uint64_t{1} << 30;

 private:
  struct Entry;
  class Registry;
  PageLock(Entry& entry, const Extent& extent);

  Entry& entry_;
  const Extent extent_;
  const unsigned generation_;  // of the process (fork)
};

}  // namespace zerohop::gpu
