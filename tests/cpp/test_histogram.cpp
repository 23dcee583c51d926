// Durations: the bucket in which they are counted, and the values read back.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "base/histogram.hpp"
#include "base/ticks.hpp"

namespace zerohop::testing {
namespace {

TEST_CASE("every duration is in the first bucket whose bound is not below it") {
  std::vector<std::uint64_t> durations{0, 1, 63, 64, 65, 96, 97, 128, 129, UINT64_MAX};
  for (std::size_t i = 0; i + 1 < Histogram::kBuckets; ++i) {
    durations.push_back(Histogram::bound(i));
    durations.push_back(Histogram::bound(i) + 1);
  }
  std::mt19937_64 random(7);
  for (int i = 0; i < 10000; ++i) durations.push_back(random() >> (random() % 64));
  for (const std::uint64_t duration : durations) {
    const std::size_t bucket = Histogram::bucket(duration);
    REQUIRE(bucket < Histogram::kBuckets);
    CHECK(duration <= Histogram::bound(bucket));
    if (bucket > 0) CHECK(duration > Histogram::bound(bucket - 1));
  }
}

TEST_CASE("bounds lie at most one half apart") {
  for (std::size_t i = 1; i + 1 < Histogram::kBuckets; ++i) {
    CHECK(Histogram::bound(i) > Histogram::bound(i - 1));
    CHECK(2 * Histogram::bound(i) <= 3 * Histogram::bound(i - 1));
  }
  CHECK(Histogram::bound(Histogram::kBuckets - 2) == std::uint64_t{1} << 36);
}

TEST_CASE("quantiles lie in the bucket of the duration that has that rank") {
  Histogram histogram;
  CHECK(histogram.read().quantile(0.5) == 0);
  for (std::uint64_t i = 1; i <= 1000; ++i) histogram.add(i * 1000);
  const Histogram::Reading reading = histogram.read();
  CHECK(reading.count == 1000);
  CHECK(reading.sum == 1000 * 500500);
  for (const double share : {0.01, 0.5, 0.9, 0.99}) {
    const auto exact = static_cast<std::uint64_t>(share * 1'000'000);
    const std::size_t bucket = Histogram::bucket(exact);
    CHECK(reading.quantile(share) <= static_cast<double>(Histogram::bound(bucket)));
    CHECK(reading.quantile(share) >= static_cast<double>(Histogram::bound(bucket - 1)));
  }
  Histogram endless;
  endless.add(UINT64_MAX);
  CHECK(endless.read().quantile(0.5) == std::pow(2, 36));
}

TEST_CASE("what threads add at once is all there, in a sum of two as well") {
  Histogram histogram;
  std::vector<std::jthread> threads;
  for (std::uint64_t duration : {50, 5000, 500000}) {
    threads.emplace_back([&histogram, duration] {
      for (int i = 0; i < 10000; ++i) histogram.add(duration);
    });
  }
  threads.clear();
  Histogram both;
  both.add(100);
  both.add(histogram);
  const Histogram::Reading reading = both.read();
  CHECK(reading.count == 30001);
  CHECK(reading.sum == 10000 * std::uint64_t{505050} + 100);
  CHECK(reading.counts[Histogram::bucket(5000)] == 10000);
}

TEST_CASE("ticks last as long as the time of the steady clock") {
  ticks::open();
  using Clock = std::chrono::steady_clock;
  const auto outer_begin = Clock::now();
  const std::uint64_t begin = ticks::now();
  const auto inner_begin = Clock::now();
  while (Clock::now() - inner_begin < std::chrono::milliseconds(20)) {
  }
  const auto inner = Clock::now() - inner_begin;
  const std::uint64_t end = ticks::now();
  const auto outer = Clock::now() - outer_begin;
  const auto measured = static_cast<double>(ticks::nanoseconds(begin, end));
  CHECK(measured >= 0.99 * static_cast<double>(inner.count()));
  CHECK(measured <= 1.01 * static_cast<double>(outer.count()));
  CHECK(ticks::nanoseconds(end, begin) == 0);
}

}  // namespace
}  // namespace zerohop::testing
