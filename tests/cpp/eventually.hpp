// Bounded waits for what another thread or process does.
#pragma once

#include <thread>

#include "base/deadline.hpp"

namespace zerohop::testing {

constexpr double kTimeout = 20.0;  // seconds, for what must happen; a failing test ends then

inline Deadline within(double seconds) { return Deadline::after(Deadline::Seconds(seconds)); }
inline Deadline soon() { return within(kTimeout); }

// Whether it happened in time.
template <typename Happened>
bool eventually(Happened happened, double seconds = kTimeout) {
  const Deadline deadline = within(seconds);
  while (!happened()) {
    if (deadline.passed()) return happened();
    std::this_thread::yield();
  }
  return true;
}

}  // namespace zerohop::testing
