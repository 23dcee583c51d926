// Has streams of one GPU wait for words, boundedly, and tells what became of each wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/gpu_words.hpp"
#include "gpu/handles.hpp"
#include "gpu/kernels.hpp"
#include "gpu/mark.hpp"

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
  void give_back(Place place) noexcept;

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
    std::uint32_t unused = 0;
  };
  struct Pages {
    Line lines[kMost];
    WaitEnd ends[kMost];  // copied from the GPU
  };
  Pages& pages() const noexcept { return *static_cast<Pages*>(pages_.get()); }
  Line& line(Place place) const noexcept { return pages().lines[place]; }
  driver::CudaResult ask_for_ends() noexcept;

  const std::shared_ptr<const Device> device_;
  const std::shared_ptr<const Kernels> kernels_;
  const unsigned generation_;  // of the process (fork)
  PinnedPages pages_;
  std::shared_ptr<const GpuWords> ends_;
  Stream stream_;  // of the copies
  Event copied_;
  bool copying_ = false;
  std::mutex mutex_;  // guards the next
  std::vector<Place> free_;
};

}  // namespace zerohop::gpu
