// A pool of numbered places.
#pragma once

#include <cstdint>
#include <mutex>
#include <numeric>
#include <optional>
#include <vector>

#include "base/locks.hpp"

namespace zerohop::gpu {

// Thread-safe.
class Places {
 public:
  explicit Places(std::uint32_t count) : free_(count) {
    std::iota(free_.rbegin(), free_.rend(), 0);
  }

  std::optional<std::uint32_t> take() {  // nullopt: all are taken
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::nullopt;
    const std::uint32_t place = free_.back();
    free_.pop_back();
    return place;
  }
  void give_back(std::uint32_t place) noexcept {
    const std::lock_guard lock(mutex_);
    free_.push_back(place);  // within its initial capacity
  }

 private:
  Mutex<Rank::gpu_places> mutex_;  // guards free_
  std::vector<std::uint32_t> free_;
};

}  // namespace zerohop::gpu
