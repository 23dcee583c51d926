// Which causes have been reported already, so that each is reported once.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string_view>

#include "base/locks.hpp"

namespace zerohop {

class Causes {
 public:
  static constexpr std::size_t kMost = 32;  // later causes are not reported at all

  // Returns whether the cause is new. Does not allocate.
  bool add(std::string_view cause) noexcept {
    const std::size_t hash = std::hash<std::string_view>{}(cause);
    if (last_.load(std::memory_order_relaxed) == hash) return false;  // nearly always
    const std::lock_guard lock(mutex_);
    last_.store(hash, std::memory_order_relaxed);
    const auto end = hashes_.begin() + static_cast<std::ptrdiff_t>(count_);
    if (count_ == kMost || std::find(hashes_.begin(), end, hash) != end) return false;
    hashes_[count_++] = hash;
    return true;
  }

 private:
  std::atomic<std::size_t> last_{0};
  Mutex<Rank::causes> mutex_;
  std::array<std::size_t, kMost> hashes_{};
  std::size_t count_ = 0;
};

}  // namespace zerohop
