// Which exposures one visitor uses at this moment: a page between a process and that visitor
// (hazard pointers, M. M. Michael 2004, across processes).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace zerohop::ipc {

class Hazards {
 public:
  static constexpr std::size_t kClaims = 64;  // threads of a visitor that copy at once

  // Of the owner: whether any thread of the visitor is at work in this slot.
  bool claimed(std::uint32_t slot) const noexcept {
    for (const Line& line : lines_) {
      if (line.claimed.load() == slot + 1) return true;
    }
    return false;
  }

  // Of the visitor: while it lives, the owner does not take the memory of this slot away. To be
  // made before asking the ledger whether the slot still stands.
  class Claim {
   public:
    Claim(Hazards& hazards, std::uint32_t slot) noexcept : word_(hazards.take(slot)) {}
    ~Claim() { word_.store(0, std::memory_order_release); }  // after the copy
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

   private:
    std::atomic<std::uint32_t>& word_;
  };

 private:
  // One cache line each: threads do not disturb each other.
  struct alignas(64) Line {
    std::atomic<std::uint32_t> claimed;  // slot + 1; 0: free
  };

  // Spins when more than kClaims threads copy at once, for the time of one copy.
  std::atomic<std::uint32_t>& take(std::uint32_t slot) noexcept;

  std::array<Line, kClaims> lines_;
};

static_assert(sizeof(Hazards) == 4096, "one page");

}  // namespace zerohop::ipc
