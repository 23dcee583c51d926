// Mutexes that know their place in the lock order (base/lock_order.hpp). Builds for tests (Debug,
// Sanitize) check it at every lock and end the program at the first that is out of order, whether
// or not another thread was near; and so for one that a child of fork() has from its parent, where
// a thread that the child has not may hold it. In other builds these are the standard's own types,
// at no cost.
#pragma once

#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#include "base/fork.hpp"
#include "base/lock_order.hpp"

namespace zerohop {

// Of the calling thread. `name` is what RankedMutex::name() says.
namespace held_locks {

void await(Rank rank, const char* name) noexcept;         // is about to be taken
void await_shared(Rank rank, const char* name) noexcept;  // likewise, perhaps once more
void add(Rank rank, const char* name) noexcept;           // was taken without waiting for ever
void remove(Rank rank) noexcept;                          // was given back
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
  // The signature, as the compiler words it: "...[with zerohop::Rank rank =
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
