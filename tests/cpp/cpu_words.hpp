// The words of a ring as CPU threads access them, so that kernel code runs in tests.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <thread>

#include "zerohop/mlx5.h"
#include "zerohop/send_ring.h"

namespace zerohop::testing {

struct CpuWords {
  template <typename T>
  static std::atomic_ref<T> word(std::uint64_t at) {
    return std::atomic_ref(*reinterpret_cast<T*>(at));
  }
  static std::uint32_t load(std::uint64_t at) {
    return word<std::uint32_t>(at).load(std::memory_order_acquire);
  }
  static device::RingCounts counts(std::uint64_t at) {
    return {load(at), load(at + 4), load(at + 8), load(at + 12)};
  }
  static void store(std::uint64_t at, std::uint32_t value) {
    word<std::uint32_t>(at).store(value, std::memory_order_release);
  }
  static bool swap(std::uint64_t at, std::uint32_t expected, std::uint32_t desired) {
    return word<std::uint32_t>(at).compare_exchange_strong(expected, desired,
                                                           std::memory_order_acquire);
  }
  static std::uint64_t arrival(std::uint64_t at) {
    return word<std::uint64_t>(at).load(std::memory_order_acquire);
  }
  static void block(std::uint64_t at, const device::mlx5::Block& block) {
    for (std::size_t i = 0; i < std::size(block.words); ++i) {
      word<std::uint32_t>(at + 4 * i).store(block.words[i], std::memory_order_relaxed);
    }
  }
  static void record(std::uint64_t at, std::uint32_t value) { store(at, value); }
  static void ring(std::uint64_t at, std::uint64_t value) {
    word<std::uint64_t>(at).store(value, std::memory_order_release);
  }
  static std::uint64_t nanoseconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count());
  }
  static void relax() { std::this_thread::yield(); }
};

}  // namespace zerohop::testing
