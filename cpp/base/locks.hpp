// Mutexes with a rank in the lock order (base/lock_order.hpp). Test builds (Debug, Sanitize) check
// the order at every lock and abort at the first violation, whether or not it would have
// deadlocked. They also abort when a child of fork() takes a lock of its parent: a thread that does
// not exist in the child may hold it. In other builds these are the standard types, at no cost.
#pragma once

#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#include "base/fork.hpp"
#include "base/lock_order.hpp"

namespace zerohop {

// State of the calling thread. `name` is RankedMutex::name().
namespace held_locks {

void await(Rank rank, const char* name) noexcept;         // about to block on it
void await_shared(Rank rank, const char* name) noexcept;  // likewise, shared; recursion allowed
void add(Rank rank, const char* name) noexcept;           // taken without blocking for ever
void remove(Rank rank) noexcept;                          // released
void check_process(unsigned made_in, Rank rank, const char* name) noexcept;  // fork_generation()

}  // namespace held_locks

template <Rank rank, typename Standard>
class RankedMutex {
 public:
  void lock() {
    check_process();
    held_locks::await(rank, name());
    mutex_.lock();
  }
  bool try_lock() { return noted(mutex_.try_lock()); }
  template <typename Duration>
  bool try_lock_for(const Duration& duration) {
    return noted(mutex_.try_lock_for(duration));
  }
  void unlock() {
    mutex_.unlock();
    held_locks::remove(rank);
  }
  void lock_shared() {
    check_process();
    held_locks::await_shared(rank, name());
    mutex_.lock_shared();
  }
  bool try_lock_shared() { return noted(mutex_.try_lock_shared()); }
  void unlock_shared() {
    mutex_.unlock_shared();
    held_locks::remove(rank);
  }

 private:
  // The function's signature as the compiler spells it: "...[with zerohop::Rank rank =
  // zerohop::Rank::poller...".
  static constexpr const char* name() { return __PRETTY_FUNCTION__; }
  void check_process() const noexcept { held_locks::check_process(made_in_, rank, name()); }
  static bool noted(bool locked) noexcept {
    if (locked) held_locks::add(rank, name());
    return locked;
  }

  Standard mutex_;
  const unsigned made_in_ = fork_generation();
};

#ifdef ZEROHOP_CHECK_LOCKS
template <Rank rank>
using Mutex = RankedMutex<rank, std::mutex>;
template <Rank rank>
using SharedMutex = RankedMutex<rank, std::shared_timed_mutex>;
using Condition = std::condition_variable_any;
#else
template <Rank>
using Mutex = std::mutex;
template <Rank>
using SharedMutex = std::shared_timed_mutex;
using Condition = std::condition_variable;
#endif

}  // namespace zerohop
