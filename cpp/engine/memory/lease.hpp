// Something shared until it is closed: current users keep it until they are done, and the last one
// releases it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "base/deadline.hpp"
#include "base/fork.hpp"
#include "base/locks.hpp"

namespace zerohop::engine {

// Thread-safe. A use costs two read-modify-writes of one word: less than a lock and a reference
// count, which would slow transfers of a few bytes.
template <typename T>
class Lease {
 public:
  explicit Lease(std::shared_ptr<T> what) noexcept : what_(std::move(what)) {}
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Keeps the object alive; must not outlive the Lease. False: closed.
  class Use {
   public:
    explicit Use(Lease& lease) noexcept : lease_(lease) {
      open_ = (lease_.state_.fetch_add(1, std::memory_order_acquire) & kClosed) == 0;
    }
    ~Use() { lease_.leave(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    explicit operator bool() const noexcept { return open_; }
    const std::shared_ptr<T>& what() const noexcept { return lease_.what_; }  // unless closed

   private:
    friend class Lease;
    Lease& lease_;
    bool open_;
  };

  // Prevents new uses. Returns the object, which the caller releases before it calls finish();
  // null: it was closed before.
  std::shared_ptr<T> close() noexcept {
    // Only the first closer counts as a use: a later one could be the last, and release the object
    // behind the first one's back.
    std::uint64_t open = state_.load(std::memory_order_relaxed);
    do {
      if ((open & kClosed) != 0) return nullptr;
    } while (!state_.compare_exchange_weak(open, (open + 1) | kClosed, std::memory_order_acq_rel,
                                           std::memory_order_relaxed));
    std::shared_ptr<T> what = what_;
    leave();
    return what;
  }
  bool closed() const noexcept { return (state_.load(std::memory_order_acquire) & kClosed) != 0; }

  // The closer has released everything.
  void finish() noexcept {
    if (is_of_parent()) return finished_.store(true);
    {
      const std::lock_guard lock(mutex_);
      finished_.store(true);
    }
    finishing_.notify_all();
  }
  bool finished() const noexcept { return finished_.load(); }
  // For callers that were not the first to close it. False: not done at the deadline.
  bool await_finish(const Deadline& deadline) const noexcept {
    if (is_of_parent()) return true;  // the parent's threads close it there
    std::unique_lock lock(mutex_);
    return finishing_.wait_until(lock, deadline.at(), [&] { return finished(); });
  }

  // In a child of fork() that inherited it: no thread here uses it.
  bool is_of_parent() const noexcept { return generation_ != fork_generation(); }

 private:
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kGone = std::uint64_t{1} << 62;  // what_ is null, or about to be

  void leave() noexcept {
    // acq_rel: orders what a use did to the object before its end.
    const std::uint64_t left = state_.fetch_sub(1, std::memory_order_acq_rel) - 1;
    if (left != kClosed) return;
    // A Use that finds it closed also counts for a moment: only one of the last may proceed.
    std::uint64_t closed = kClosed;
    if (state_.compare_exchange_strong(closed, kClosed | kGone, std::memory_order_acq_rel)) {
      what_.reset();
    }
  }

  std::atomic<std::uint64_t> state_{0};  // number of uses; kClosed, kGone
  std::shared_ptr<T> what_;              // changed only by the last user
  mutable Mutex<Rank::lease> mutex_;     // guards changes of finished_
  mutable Condition finishing_;
  std::atomic<bool> finished_{false};
  const unsigned generation_ = fork_generation();  // of the process
};

}  // namespace zerohop::engine
