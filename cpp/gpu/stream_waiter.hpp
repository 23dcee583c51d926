// Has streams of one GPU wait for words, boundedly, and tells what became of each wait.
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

// Any thread. What streams still wait for must have ended before the object goes.
class StreamWaiter {
 public:
  static constexpr std::uint32_t kMost = 1024;  // waits that have not ended

  // Throws RouteUnavailable (built without kernels), CudaError.
  explicit StreamWaiter(std::shared_ptr<const Device> device);
  ~StreamWaiter();
  StreamWaiter(const StreamWaiter&) = delete;
  StreamWaiter& operator=(const StreamWaiter&) = delete;

  const std::shared_ptr<const Device>& device() const noexcept { return device_; }

  using Place = std::uint32_t;
  Place take();  // throws Error when kMost are taken
  void give_back(Place place) noexcept { places_.give_back(place); }

  // Puts the wait into the stream; of `wait` the caller leaves out what belongs to the place.
  // Throws CudaError, RouteUnavailable (see check_stream).
  void begin(Place place, Wait wait, driver::CudaStream stream);

  // To be called by one thread at a time, over and over: has what became of the waits copied to
  // the host. kCudaSuccess: result() tells more than before; kCudaErrorNotReady: not yet; else the
  // GPU has failed, and ends nothing any more.
  driver::CudaResult refresh() noexcept;
  struct Result {
    Outcome outcome;
    std::uint32_t value;  // that came
    std::uint32_t tag;    // of the note that came; 0: it was none
  };
  Result result(Place place) const noexcept;  // as of the last refresh(), by its thread
  void give_up(Place place) noexcept;  // ends the wait, be it now or when the stream gets there
  // The GPU has failed with waits begun, whose kernels may still write: what they write stays for
  // good.
  void leave_behind() noexcept { left_behind_ = true; }

  // A word for the place, and how the CPU brings it to its number.
  struct Gate {
    Place place;
    std::uint32_t number;
  };
  Gate gate(Place place) const noexcept;
  driver::CudaAddress word(const Gate& gate) const noexcept;
  void open(const Gate& gate) noexcept;

 private:
  // In pinned memory, which the GPU reads.
  struct Line {
    std::atomic<std::uint32_t> given_up{0};
    std::atomic<std::uint32_t> gate{0};
    std::atomic<std::uint32_t> use{0};  // the place's present one; the GPU does not look
  };
  struct Pages {
    Line lines[kMost];
    WaitEnd ends[kMost];  // copied from the GPU
  };
  // What the driver knows: destroyed apart.
  struct Parts {
    std::shared_ptr<const Kernels> kernels;
    PinnedPages pages;
    std::shared_ptr<const GpuWords> ends;
    Stream stream;  // of the copies
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
