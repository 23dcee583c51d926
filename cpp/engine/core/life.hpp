// The life of an object whose calls may still be under way when it ends.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "base/locks.hpp"

namespace zerohop::engine {

// Any thread. What the object holds is released once, when nobody is inside: by end() itself, or
// by the last call to leave.
class Life {
 public:
  explicit Life(std::function<void()> release) : release_(std::move(release)) {}
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

  // A call that uses what is released.
  class Inside {
   public:
    explicit Inside(Life& life) : life_(life) { life_.mutex_.lock_shared(); }
    ~Inside() {
      life_.mutex_.unlock_shared();
      life_.release_if_last(std::chrono::milliseconds(0));
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    Life& life_;
  };

  // Whoever is inside has been told to leave, and is waited for so long; who takes longer (a driver
  // that registers memory, a call that this very thread has interrupted with a signal handler that
  // closes) does the releasing when it leaves.
  void end(std::chrono::milliseconds patience) noexcept {
    ended_.store(true);
    release_if_last(patience);
  }

 private:
  void release_if_last(std::chrono::milliseconds patience) noexcept {
    if (!ended_.load()) return;
    const std::unique_lock alone(mutex_, patience);
    if (alone.owns_lock() && !std::exchange(released_, true)) release_();
  }

  const std::function<void()> release_;
  SharedMutex<Rank::endpoint_life> mutex_;  // shared by calls, exclusive to the release
  std::atomic<bool> ended_{false};
  bool released_ = false;  // guarded by the mutex
};

}  // namespace zerohop::engine
