// When a Transfer was asked for, began to move and ended, for who looks at single ones: kept while
// the program asks for it. Otherwise each of them costs the look at one flag.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace zerohop::engine {

class Times {
 public:
  // Seconds of the steady clock, which is CLOCK_MONOTONIC.
  using Seconds = std::optional<double>;

  // Of the Transfers that this process makes from now on.
  static void keep(bool on) noexcept { kept_.store(on, std::memory_order_relaxed); }
  static bool kept() noexcept { return kept_.load(std::memory_order_relaxed); }

  Times() noexcept {
    if (kept()) asked_ = now();
  }
  // The first call counts; any thread.
  void begin() noexcept {
    std::int64_t none = 0;
    if (asked_ != 0 && begun_.load(std::memory_order_relaxed) == 0) {
      begun_.compare_exchange_strong(none, now(), std::memory_order_relaxed);
    }
  }
  // Once, by who ends it.
  void end() noexcept {
    if (asked_ != 0) ended_.store(now(), std::memory_order_relaxed);
  }

  Seconds asked() const noexcept { return seconds(asked_); }
  Seconds begun() const noexcept { return seconds(begun_.load(std::memory_order_relaxed)); }
  Seconds ended() const noexcept { return seconds(ended_.load(std::memory_order_relaxed)); }

 private:
  static std::int64_t now() noexcept {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
  }
  static Seconds seconds(std::int64_t nanoseconds) noexcept {
    return nanoseconds == 0 ? Seconds{} : Seconds{static_cast<double>(nanoseconds) * 1e-9};
  }

  static inline std::atomic<bool> kept_{false};
  std::int64_t asked_ = 0;  // 0: not kept
  std::atomic<std::int64_t> begun_{0};
  std::atomic<std::int64_t> ended_{0};
};

}  // namespace zerohop::engine
