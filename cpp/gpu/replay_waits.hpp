// Waits of CUDA graphs on one GPU, and how they ended in vain: found in pinned memory, without a
// call of the driver.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "gpu/handles.hpp"
#include "gpu/kernels.hpp"
#include "gpu/places.hpp"
#include "gpu/replay_words.hpp"

namespace zerohop::gpu {

// Thread-safe.
class ReplayWaits {
 public:
  static constexpr std::uint32_t kMost = 4096;  // in existing graphs

  // Throws RouteUnavailable (built without kernels), CudaError, TransferTimeout.
  ReplayWaits(const std::shared_ptr<const Device>& device, const Deadline& deadline);
  // No graph contains any of its waits.
  ~ReplayWaits();
  ReplayWaits(const ReplayWaits&) = delete;
  ReplayWaits& operator=(const ReplayWaits&) = delete;

  const std::shared_ptr<const Device>& device() const noexcept { return words_.device(); }
  const ReplayWords& words() const noexcept { return words_; }

  using Place = std::uint32_t;
  Place take();  // throws Error when kMost are taken
  void give_back(Place place) noexcept { places_.give_back(place); }

  // Enqueues the wait; the caller leaves the fields that depend on the place unset: `fault`,
  // `faults`, and `closed` and `word` where the CPU sets them, by close() and open(). The caller
  // has made the device current. Throws CudaError.
  void add(Place place, ReplayedWait wait, driver::CudaStream stream) const;
  void open(Place place) noexcept { line(place).open.store(1, std::memory_order_release); }
  void close(Place place) noexcept { line(place).closed.store(1, std::memory_order_release); }

  // How many waits of all places were in vain; counted after the fault of each is there.
  std::uint32_t faults() const noexcept { return pages().faults.load(std::memory_order_acquire); }
  WaitFault fault(Place place) const noexcept {
    return line(place).fault.load(std::memory_order_relaxed);
  }

 private:
  struct Line {
    std::atomic<std::uint32_t> closed{0};
    std::atomic<std::uint32_t> open{0};
    std::atomic<WaitFault> fault{};
  };
  static_assert(std::atomic<WaitFault>::is_always_lock_free, "kernels write it in one access");
  struct Pages {
    std::atomic<std::uint32_t> faults{0};
    alignas(16) Line lines[kMost];
  };
  struct Parts {
    std::shared_ptr<const Kernels> kernels;
    PinnedPages pages;
  };
  Pages& pages() const noexcept { return *static_cast<Pages*>(parts_->pages.get()); }
  Line& line(Place place) const noexcept { return pages().lines[place]; }

  const ReplayWords words_;
  const unsigned generation_;  // of the process (fork)
  std::unique_ptr<Parts> parts_ = std::make_unique<Parts>();
  Places places_{kMost};
};

}  // namespace zerohop::gpu
