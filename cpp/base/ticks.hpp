// A clock for events that occur millions of times a second: a reading costs at most half of one of
// steady_clock where the processor has a constant-rate counter, and the same elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace zerohop::ticks {

namespace detail {
inline bool by_counter = false;      // set by open()
inline double nanoseconds_each = 1;  // likewise
}  // namespace detail

// Compares the two clocks for a millisecond, once per process. Call before the first now().
void open();

inline std::uint64_t now() noexcept {
#if defined(__x86_64__)
  if (detail::by_counter) return __rdtsc();
#endif
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

// Time between two readings; 0 if the second appears to come first, as it may on another core.
inline std::uint64_t nanoseconds(std::uint64_t begin, std::uint64_t end) noexcept {
  const auto passed = static_cast<std::int64_t>(end - begin);
  return passed > 0
             ? static_cast<std::uint64_t>(static_cast<double>(passed) * detail::nanoseconds_each)
             : 0;
}

}  // namespace zerohop::ticks
