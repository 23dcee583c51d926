// Closes memory when its time is over.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/locks.hpp"
#include "engine/memory/closing.hpp"
#include "engine/memory/memory.hpp"
#include "engine/wait/progress_thread.hpp"

namespace zerohop::engine {

// Thread-safe. A separate thread closes, as that may take a while. Memory loses its right when due,
// even if copies of other memory still run.
class Expiry {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws Error when the process is out of descriptors or threads, the first time.
  void at(Clock::time_point when, WeakMemory memory);
  void stop() noexcept;  // nothing more is closed or started
  bool runs() const;     // the thread exists

 private:
  std::chrono::milliseconds close_due();

  mutable Mutex<Rank::expiry> mutex_;  // guards all members below
  std::multimap<Clock::time_point, WeakMemory> due_;
  std::size_t next_sweep_ = 64;  // entry count at which dead entries are removed
  bool stopped_ = false;
  std::vector<std::pair<Closing, Deadline>> closings_;  // used by that thread only
  std::unique_ptr<ProgressThread> thread_;
};

}  // namespace zerohop::engine
