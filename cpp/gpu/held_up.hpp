// Tells of a call of the driver that came back late. While one thread of a process copies to or
// from pageable memory, or frees memory, behind work of the GPU that waits, the driver lets no copy
// and no launch of another thread into that context: not the one either that the work waits for
// (CUDA 13.0 on H200; calls that only wait, and copies of pinned memory started without
// waiting, hold up nothing).
#pragma once

#include <chrono>

namespace zerohop::gpu {

class HeldUp {
 public:
  using Clock = std::chrono::steady_clock;

  // `call`: its name, which outlives this. From `bound` on it was held up.
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
