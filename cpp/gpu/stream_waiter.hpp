// Makes streams of one GPU wait for words, with a bound, and reports the result of each wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "gpu/gpu_words.hpp"
#include "gpu/handles.hpp"
#include "gpu/kernels.hpp"
#include "gpu/mark.hpp"
#include "gpu/places.hpp"

namespace zerohop::gpu {

// Thread-safe. All waits must have ended before the object is destroyed.
class StreamWaiter {
 public:
  static constexpr std::uint32_t kMost = 1024;  // unfinished waits

  // Throws RouteUnavailable (built without kernels), CudaError.
  explicit StreamWaiter(std::shared_ptr<const Device> device);
  ~StreamWaiter();
  StreamWaiter(const StreamWaiter&) = delete;
  StreamWaiter& operator=(const StreamWaiter&) = delete;

  const std::shared_ptr<const Device>& device() const noexcept { return device_; }

  using Place = std::uint32_t;
  Place take();  // throws Error when kMost are taken
  void give_back(Place place) noexcept { places_.give_back(place); }

  // Enqueues the wait; the caller leaves the fields of `wait` that depend on the place unset.
  // Throws CudaError, RouteUnavailable (see check_stream).
  void begin(Place place, Wait wait, driver::CudaStream stream);

  // Call repeatedly, from one thread at a time: copies the results of the waits to the host.
  // kCudaSuccess: result() has new data; kCudaErrorNotReady: not yet; other errors: the GPU has
  // failed, and no wait will end any more.
  driver::CudaResult refresh() noexcept;
  struct Result {
    Outcome outcome;
    std::uint32_t value;  // the value that arrived
    std::uint32_t tag;    // of the note that arrived; 0: not a note
  };
  Result result(Place place) const noexcept;  // as of the last refresh(), by its thread
  void cancel(Place place) noexcept;          // ends the wait, now or when the stream reaches it
  // The GPU failed with unfinished waits, whose kernels may still write: leak their targets.
  void leave_behind() noexcept { left_behind_ = true; }

  // A word of the place, which the CPU advances to `number`.
  struct Gate {
    Place place;
    std::uint32_t number;
  };
  Gate gate(Place place) const noexcept;
  driver::CudaAddress word(const Gate& gate) const noexcept;
  void open(const Gate& gate) noexcept;

 private:
  // In pinned memory, which the GPU can access.
  struct Line {
    std::atomic<std::uint32_t> cancelled{0};
    std::atomic<std::uint32_t> gate{0};
    std::atomic<std::uint32_t> use{0};  // the place's current use; the GPU does not read it
  };
  struct Pages {
    Line lines[kMost];
    WaitEnd ends[kMost];  // copied from the GPU
  };
  // Driver objects, destroyed on another thread.
  struct Parts {
    std::shared_ptr<const Kernels> kernels;
    PinnedPages pages;
    std::shared_ptr<const GpuWords> ends;
    Stream stream;  // carries the copies
    Event copied;
  };
  Pages& pages() const noexcept { return *static_cast<Pages*>(parts_->pages.get()); }
  Line& line(Place place) const noexcept { return pages().lines[place]; }
  driver::CudaResult ask_for_ends() noexcept;

  const std::shared_ptr<const Device> device_;
  const unsigned generation_;  // of the process (fork)
  std::unique_ptr<Parts> parts_ = std::make_unique<Parts>();
  bool copying_ = false;
  std::atomic<bool> left_behind_{false};
  Places places_{kMost};
};

}  // namespace zerohop::gpu
