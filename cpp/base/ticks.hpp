// A clock for what happens millions of times a second: a look costs half of one at steady_clock or
// less where the processor has a counter of constant rate, and the same elsewhere.
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

// Once a process it takes a millisecond, to compare the two clocks. To be called before now(), by
// whoever starts what calls that.
void open();

inline std::uint64_t now() noexcept {
#if defined(__x86_64__)
  if (detail::by_counter) return __rdtsc();
#endif
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

// Between two looks; 0 where the second seems to come first, as it may on another core.
inline std::uint64_t nanoseconds(std::uint64_t begin, std::uint64_t end) noexcept {
  const auto passed = static_cast<std::int64_t>(end - begin);
  return passed > 0
             ? static_cast<std::uint64_t>(static_cast<double>(passed) * detail::nanoseconds_each)
             : 0;
}

}  // namespace zerohop::ticks
