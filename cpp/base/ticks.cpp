#include "base/ticks.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <ratio>

namespace zerohop::ticks {
namespace {

using Clock = std::chrono::steady_clock;
static_assert(std::ratio_equal_v<Clock::period, std::nano>, "now() counts nanoseconds without one");

#if defined(__x86_64__)

// Same rate in every power state and on every core: Intel SDM volume 3, 19.17.1.
bool counter_is_constant() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
}

struct Both {
  std::uint64_t counter;
  Clock::time_point time;
};

// Takes the tightest of a few readings, most likely the one without an interruption.
Both look() {
  Both best{};
  std::uint64_t narrowest = UINT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t before = __rdtsc();
    const Clock::time_point time = Clock::now();
    const std::uint64_t width = __rdtsc() - before;
    if (width < narrowest) {
      narrowest = width;
      best = {before + width / 2, time};
    }
  }
  return best;
}

bool compare_clocks() {
  if (!counter_is_constant()) return false;
  const Both first = look();
  while (Clock::now() - first.time < std::chrono::milliseconds(1)) {
  }
  const Both second = look();
  const auto passed = static_cast<double>((second.time - first.time).count());
  if (second.counter <= first.counter) return false;
  detail::nanoseconds_each = passed / static_cast<double>(second.counter - first.counter);
  return detail::by_counter = true;
}

#else

bool compare_clocks() { return false; }

#endif

}  // namespace

void open() { [[maybe_unused]] static const bool by_counter = compare_clocks(); }

}  // namespace zerohop::ticks
