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
#include "engine/wait/progress.hpp"

namespace zerohop::engine {

// Any thread. A thread of its own closes: that may take a while, which no other has. What is due
// loses its right then, whatever copies of others still run.
class Expiry {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws Error when the process is out of descriptors or threads, the first time.
  void at(Clock::time_point when, WeakMemory memory);
  void stop() noexcept;  // nothing is closed any more, nor begun
  bool runs() const;     // it has a thread

 private:
  std::chrono::milliseconds close_due();

  mutable Mutex<Rank::expiry> mutex_;  // guards all below
  std::multimap<Clock::time_point, WeakMemory> due_;
  std::size_t next_sweep_ = 64;  // entries at which those that are gone are swept out
  bool stopped_ = false;
  std::vector<std::pair<Closing, Deadline>> closings_;  // of that thread alone
  std::unique_ptr<Progress> thread_;
};

}  // namespace zerohop::engine
