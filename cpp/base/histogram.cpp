#include "base/histogram.hpp"

namespace zerohop {

Histogram::Reading Histogram::read() const noexcept {
  Reading reading;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    reading.counts[i] = counts_[i].load(std::memory_order_relaxed);
    reading.count += reading.counts[i];
  }
  reading.sum = sum_.load(std::memory_order_relaxed);
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
