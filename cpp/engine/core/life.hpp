// The life of an object that may end while calls still use it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "base/locks.hpp"

namespace zerohop::engine {

// Any thread. The object's resources are released once, when no call is inside: by end() itself, or
// by the last call to leave.
class Life {
 public:
  explicit Life(std::function<void()> release) : release_(std::move(release)) {}
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

  // A call that uses these resources.
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

  // The caller has asked the calls inside to leave; end() waits `patience` for them. A call that
  // takes longer releases the resources when it leaves: a driver that registers memory, or a call
  // of this very thread that was interrupted by a signal handler that closes.
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
  SharedMutex<Rank::endpoint_life> mutex_;  // shared by calls, exclusive for the release
  std::atomic<bool> ended_{false};
  bool released_ = false;  // guarded by the mutex
};

}  // namespace zerohop::engine
