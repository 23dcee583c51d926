// A point on the monotonic clock by which a wait ends. Every wait in zerohop takes one.
#pragma once

#include <algorithm>
#include <chrono>

namespace zerohop {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  // Waits longer than a year are clamped: a larger sum would overflow 64-bit nanoseconds.
  static Deadline after(Seconds seconds) {
    const Seconds bounded = std::clamp(seconds, Seconds{0}, kLongest);
    return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(bounded));
  }

  bool passed() const noexcept { return Clock::now() >= at_; }
  Clock::time_point at() const noexcept { return at_; }

  // Whole milliseconds left, rounded up so that poll(2) does not spin through the last one.
  int remaining_ms() const noexcept {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<long long>(left, 0, 1'000'000'000));
  }

 private:
  static constexpr Seconds kLongest{365.0 * 24 * 3600};
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace zerohop
