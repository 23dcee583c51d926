// Reports a driver call that returned late. While one thread copies pageable memory, or frees
// memory, behind GPU work that waits, the driver blocks all copies and launches of other threads in
// that context, including the one that the work waits for (CUDA 13.0 on H200). Calls that only
// wait, and asynchronous copies of pinned memory, block nothing.
#pragma once

#include <chrono>

namespace zerohop::gpu {

class HeldUp {
 public:
  using Clock = std::chrono::steady_clock;

  // `call`: its name, a string that outlives this object. Reports calls longer than `bound`.
  explicit HeldUp(const char* call, Clock::duration bound = std::chrono::seconds(1)) noexcept
      : call_(call), bound_(bound) {}
  ~HeldUp();
  HeldUp(const HeldUp&) = delete;
  HeldUp& operator=(const HeldUp&) = delete;

 private:
  const char* const call_;
  const Clock::duration bound_;
  const Clock::time_point began_ = Clock::now();
};

}  // namespace zerohop::gpu
