// One rank's side of a group of GPUs: enqueues the kernels of its collectives, one after the other
// whatever streams they are in, and reports how far they have come.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/deadline.hpp"
#include "base/locks.hpp"
#include "gpu/group_call.hpp"
#include "gpu/handles.hpp"
#include "gpu/kernels.hpp"

namespace zerohop::gpu {

// Thread-safe.
class Group {
 public:
  // Throws RouteUnavailable (built without kernels), CudaError.
  explicit Group(std::shared_ptr<const Device> device);
  // All kernels must have ended.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::shared_ptr<const Device>& device() const noexcept { return device_; }

  struct Launch {
    GroupCall call;  // without `cancelled` and `end`
    bool by_packets = false;
    unsigned blocks = 1;
    std::shared_ptr<const void> kept = {};  // by the graph of which it becomes part
  };
  // Enqueues it. No stream: one of its own, after the work submitted to the default stream so far.
  // Returns its number, from 1; nullopt: it is part of the graph into which the stream is captured.
  // Throws CudaError, RouteUnavailable (see check_stream).
  std::optional<std::uint32_t> launch(Launch launch, std::optional<driver::CudaStream> stream);

  // The number of the latest that has ended.
  std::uint32_t ended() const noexcept { return words().ended.load(std::memory_order_acquire); }
  // The number of the latest of which it is known that it and all before it did what they were to
  // do, from a look no later than this one, and than the first call of cancel().
  std::uint32_t ended_well() noexcept;
  // The first that failed; after that all fail.
  GroupEnd failure() const noexcept;
  // All later kernels end at once, without a look at the arenas of other ranks, those of graphs
  // too. arena: this rank's. False: the GPU did not get to it in time. Throws CudaError.
  bool close(std::uint64_t arena, const Deadline& deadline);
  // Ends the kernels that wait, and all later ones.
  void cancel() noexcept {
    (void)ended_well();
    words().cancelled.store(1, std::memory_order_release);
  }

 private:
  // In pinned memory, which the GPU can access.
  struct Words {
    GroupEnd end;
    std::atomic<std::uint32_t> cancelled{0};
    std::atomic<std::uint32_t> ended{0};
  };
  // Driver objects, destroyed on another thread.
  struct Parts {
    std::shared_ptr<const Kernels> kernels;
    PinnedPages words;
    Stream stream;
    Event before;  // the work in the default stream
    Event last;    // the latest kernel
  };
  Words& words() const noexcept { return *static_cast<Words*>(parts_->words.get()); }

  const std::shared_ptr<const Device> device_;
  const unsigned generation_;  // of the process (fork)
  std::unique_ptr<Parts> parts_ = std::make_unique<Parts>();
  std::atomic<std::uint32_t> ended_well_{0};
  Mutex<Rank::gpu_group> mutex_;  // around a launch; guards the next
  std::uint32_t launched_ = 0;
};

}  // namespace zerohop::gpu
