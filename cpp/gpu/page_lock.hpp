// Page-locked host memory, which copy engines and kernels can access; doorbell registers of
// adapters, too.
#pragma once

#include <cstdint>
#include <memory>

#include "base/deadline.hpp"
#include "base/layout.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

// What GPUs do with pages. registers: they write to those of a device, which are memory only where
// the device is emulated.
enum class PageUse { read, write, registers };

// The driver locks each page once, and small arrays share pages: so locks are process-wide, found
// by address, and shared by all who need the pages.
class PageLock {
 public:
  struct Wish {
    std::shared_ptr<const Device> device;  // any GPU with the same addressing can access the pages
    std::shared_ptr<const void> owner;     // keeps `whole` mapped
    Extent whole;
    PageUse use = PageUse::write;
  };
  // What GPUs can access around an address, at the CPU's address; copies must stay inside.
  struct Found {
    std::shared_ptr<const PageLock> lock;  // null: locked by the program, which may unlock it
    Extent extent;
  };
  // An existing lock or a new one, of the whole pages of `whole`, one block of kBlock at a time.
  // Takes 0.1 to 0.2 ms per MiB; waits, until `deadline`, for threads that lock or unlock the same
  // pages. Throws RouteUnavailable with the reason, CudaError.
  static Found around(std::uint64_t address, const Wish& wish, const Deadline& deadline);

  // The GPUs must have finished with the pages. The last reference unlocks them on another thread,
  // because the driver waits for the GPU; until then they stay mapped.
  ~PageLock();
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;

  const Extent& extent() const noexcept { return extent_; }

  static std::uint64_t all_nbytes();  // locked by this process now

  // Large, so that few copies are split; small enough to be locked well within a second.
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
