// What one client is accessing, and whether it still may: two pages shared by a process and that
// client (hazard pointers, M. M. Michael 2004, across processes).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/generation_table.hpp"

namespace zerohop::shm {

// How long a claim waits while every line is taken.
enum class Patience { none, a_second };

class Hazards {
 public:
  static constexpr std::size_t kClaims = 63;  // threads of a client that access memory at once
  static constexpr std::uint32_t kBoard = UINT32_MAX - 1;           // claimed like a slot
  static constexpr std::uint32_t kSlots = GenerationTable::kSlots;  // that may be held

  // --- owner's side ---
  // Whether a thread of the client is accessing this slot, or a GPU on its behalf.
  bool claimed(std::uint32_t slot) const noexcept;
  bool claimed() const noexcept;  // in any
  // Whether a GPU is accessing it for the client.
  bool held(std::uint32_t slot) const noexcept {
    return slot < kSlots && (held_[slot / 64].load() & bit(slot)) != 0;
  }
  bool held() const noexcept;  // in any
  // The client starts nothing more; it may finish what it has claimed.
  void dismiss() noexcept { dismissed_.store(1); }

  // --- client's side ---
  bool dismissed() const noexcept { return dismissed_.load() != 0; }
  // Like a claim, for accesses without a thread: copies by a GPU. Like a claim, take it before
  // checking the generation table.
  void hold(std::uint32_t slot) noexcept { held_[slot / 64].fetch_or(bit(slot)); }
  void release(std::uint32_t slot) noexcept { held_[slot / 64].fetch_and(~bit(slot)); }

  // While it lives, the owner keeps this slot's memory. Make it before checking the generation
  // table for the slot, and before checking dismissed(): all of these are sequentially consistent,
  // so that either the client sees the end, or the owner sees the claim.
  class Claim {
   public:
    Claim(Hazards& hazards, std::uint32_t slot, Patience patience = Patience::a_second) noexcept
        : word_(hazards.take(slot, patience)) {}
    ~Claim() {
      if (word_) word_->store(0, std::memory_order_release);  // after the copy
    }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

    // False: every line stayed taken, and nothing is claimed.
    explicit operator bool() const noexcept { return word_ != nullptr; }

   private:
    std::atomic<std::uint32_t>* const word_;
  };

 private:
  // One cache line each, against false sharing.
  struct alignas(64) Line {
    std::atomic<std::uint32_t> claimed;  // slot + 1; 0: free
  };

  static constexpr std::uint64_t bit(std::uint32_t slot) noexcept {
    return std::uint64_t{1} << slot % 64;
  }
  std::atomic<std::uint32_t>* take(std::uint32_t slot, Patience patience) noexcept;

  std::array<Line, kClaims> lines_;
  alignas(64) std::atomic<std::uint32_t> dismissed_;
  alignas(64) std::array<std::atomic<std::uint64_t>, kSlots / 64> held_;
};

static_assert(sizeof(Hazards) <= 8192, "two pages");

}  // namespace zerohop::shm
