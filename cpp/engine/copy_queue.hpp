// Copies that take long, made one after the other by a thread of their own, so that their callers
// go on meanwhile.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "base/locks.hpp"

namespace zerohop::engine {

class CopyQueue {
 public:
  CopyQueue() = default;
  ~CopyQueue() { stop(); }
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;

  using Copy = std::function<void()>;  // does not throw
  void put(Copy copy);  // throws Error when the thread cannot be started, or has been stopped
  // Makes the copies that are left first: they know when they are of no use any more. Not in a
  // forked child, where the thread is not; nor on the thread itself.
  void stop() noexcept;

 private:
  void run() noexcept;

  Mutex<Rank::copy_queue> mutex_;  // guards all below
  Condition changed_;
  std::deque<Copy> copies_;
  bool stopping_ = false;
  std::thread thread_;  // from the first copy on
};

}  // namespace zerohop::engine
