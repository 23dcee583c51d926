// A rank's copies of its own blocks that it makes bit by bit, while its moves are under way.
#pragma once

#include <cstdint>
#include <span>

#include "engine/collective/schedule.hpp"

namespace zerohop::engine::collective {

class OwnCopies {
 public:
  // The schedule and the copies must stay until these are done, or others begin.
  void begin(const Schedule* schedule, std::span<const Copy> copies) noexcept {
    schedule_ = schedule;
    left_ = copies;
    copied_ = 0;
  }
  bool done() const noexcept { return left_.empty(); }
  std::uint64_t nbytes() const noexcept;  // of those that are not done
  // Copies so many bytes of the next one at most. past: the caches.
  void copy_part(std::uint64_t most, bool past) noexcept;

 private:
  const Schedule* schedule_ = nullptr;
  std::span<const Copy> left_;
  std::uint64_t copied_ = 0;  // bytes of the first of them
};

}  // namespace zerohop::engine::collective
