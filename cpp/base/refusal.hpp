// Why something does not work. Remembered for a while, so that frequent callers do not retry each
// time.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <utility>

#include "base/locks.hpp"

namespace zerohop {

// Thread-safe.
class Refusal {
 public:
  std::string reason() const {  // empty: it may be tried
    const std::lock_guard lock(mutex_);
    return Clock::now() < until_ ? reason_ : std::string();
  }
  void set(std::string reason) {
    const std::lock_guard lock(mutex_);
    reason_ = std::move(reason);
    until_ = Clock::now() + kStands;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kStands{10};

  mutable Mutex<Rank::refusal> mutex_;  // guards the next two
  std::string reason_;
  Clock::time_point until_{};
};

}  // namespace zerohop
