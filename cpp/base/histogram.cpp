#include "base/histogram.hpp"

#include <new>

namespace zerohop {

Histogram::Counts* Histogram::make_counts() noexcept {
  auto* const made = new (std::nothrow) Counts;
  Counts* before = nullptr;
  if (counts_.compare_exchange_strong(before, made, std::memory_order_acq_rel)) return made;
  delete made;
  return before;
}

void Histogram::add(const Histogram& other) noexcept {
  const Counts* const from = other.counts_.load(std::memory_order_acquire);
  Counts* const to = from != nullptr ? counts() : nullptr;
  if (to == nullptr) return;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    to->buckets[i].fetch_add(from->buckets[i].load(), std::memory_order_relaxed);
  }
  to->sum.fetch_add(from->sum.load(), std::memory_order_relaxed);
}

Histogram::Reading Histogram::read() const noexcept {
  Reading reading;
  const Counts* const counts = counts_.load(std::memory_order_acquire);
  if (counts == nullptr) return reading;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    reading.counts[i] = counts->buckets[i].load(std::memory_order_relaxed);
    reading.count += reading.counts[i];
  }
  reading.sum = counts->sum.load(std::memory_order_relaxed);
  return reading;
}

double Histogram::Reading::quantile(double share) const noexcept {
  const double rank = share * static_cast<double>(count);
  double passed = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    if (counts[i] == 0) continue;
    const auto here = static_cast<double>(counts[i]);
    if (passed + here < rank) {
      passed += here;
      continue;
    }
    const double lower = i == 0 ? 0 : static_cast<double>(bound(i - 1));
    if (i + 1 == kBuckets) return lower;
    return lower + (static_cast<double>(bound(i)) - lower) * (rank - passed) / here;
  }
  return 0;
}

}  // namespace zerohop
