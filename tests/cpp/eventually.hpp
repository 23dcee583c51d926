// Bounded waits for what another thread does.
#pragma once

#include <thread>

#include "base/deadline.hpp"

namespace zerohop::testing {

// Whether it happened in time (20 s, for what must happen; a failing test ends then).
template <typename Happened>
bool eventually(Happened happened, Deadline::Seconds within = Deadline::Seconds{20}) {
  const Deadline deadline = Deadline::after(within);
  while (!happened()) {
    if (deadline.passed()) return happened();
    std::this_thread::yield();
  }
  return true;
}

}  // namespace zerohop::testing
