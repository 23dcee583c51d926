// Closes memory when its time is over.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>

#include "base/locks.hpp"
#include "engine/memory.hpp"
#include "engine/progress.hpp"

namespace zerohop::engine {

// Any thread. A thread of its own closes: that may wait for copies, which no other may do.
class Expiry {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws Error when the process is out of descriptors or threads, the first time.
  void at(Clock::time_point when, WeakMemory memory);
  void stop() noexcept;  // nothing is closed any more

 private:
  std::chrono::milliseconds close_due();

  Mutex<Rank::expiry> mutex_;  // guards all below
  std::multimap<Clock::time_point, WeakMemory> due_;
  std::size_t next_sweep_ = 64;  // entries at which those that are gone are swept out
  std::unique_ptr<Progress> thread_;
};

}  // namespace zerohop::engine
