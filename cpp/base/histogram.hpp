// Durations, counted in buckets. Any thread may add, without a lock; any thread may read at any
// time. The buckets come with the first duration.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace zerohop {

// Two buckets for each power of two of nanoseconds.
class Histogram {
 public:
  Histogram() = default;
  ~Histogram() { delete counts_.load(std::memory_order_relaxed); }
  Histogram(const Histogram&) = delete;
  Histogram& operator=(const Histogram&) = delete;

  static constexpr int kFirst = 6;  // 64 ns and less are one bucket
  static constexpr int kLast = 36;  // more than 68.7 s are one bucket
  static constexpr std::size_t kBuckets = 2 * (kLast - kFirst) + 2;

  static constexpr std::size_t bucket(std::uint64_t nanoseconds) noexcept {
    const std::uint64_t below = nanoseconds > 0 ? nanoseconds - 1 : 0;  // bounds are inclusive
    if (below < std::uint64_t{1} << kFirst) return 0;
    const int power = std::bit_width(below) - 1;
    const std::size_t upper_half = (below >> (power - 1)) & 1;
    return std::min(1 + 2 * static_cast<std::size_t>(power - kFirst) + upper_half, kBuckets - 1);
  }
  // The longest duration that the bucket counts, nanoseconds; UINT64_MAX for the last one.
  static constexpr std::uint64_t bound(std::size_t bucket) noexcept {
    if (bucket + 1 == kBuckets) return UINT64_MAX;
    const std::uint64_t whole = std::uint64_t{1} << (kFirst + bucket / 2);
    return bucket % 2 == 0 ? whole : whole + whole / 2;
  }

  // times: how many durations this one represents, where only a sample is measured.
  void add(std::uint64_t nanoseconds, std::uint64_t times = 1) noexcept {
    Counts* const counts = this->counts();
    if (counts == nullptr) return;  // there is no memory
    counts->buckets[bucket(nanoseconds)].fetch_add(times, std::memory_order_relaxed);
    counts->sum.fetch_add(nanoseconds * times, std::memory_order_relaxed);
  }
  void add(const Histogram& other) noexcept;

  // The counts at some moment; `sum`, nanoseconds, may be slightly newer.
  struct Reading {
    std::array<std::uint64_t, kBuckets> counts{};
    std::uint64_t count = 0;
    std::uint64_t sum = 0;

    // The duration, in nanoseconds, that this share (0 to 1) did not exceed, assuming an even
    // spread within each bucket; for the last bucket its lower bound. 0 when empty.
    double quantile(double share) const noexcept;
  };
  Reading read() const noexcept;

 private:
  struct Counts {
    std::array<std::atomic<std::uint64_t>, kBuckets> buckets{};
    std::atomic<std::uint64_t> sum{0};
  };

  Counts* counts() noexcept {
    Counts* const counts = counts_.load(std::memory_order_acquire);
    return counts != nullptr ? counts : make_counts();
  }
  Counts* make_counts() noexcept;

  std::atomic<Counts*> counts_{nullptr};
};

static_assert(Histogram::bucket(64) == 0 && Histogram::bucket(65) == 1);
static_assert(Histogram::bucket(96) == 1 && Histogram::bucket(97) == 2);
static_assert(Histogram::bound(0) == 64 && Histogram::bound(1) == 96 && Histogram::bound(2) == 128);

}  // namespace zerohop
