// Whether something is over: any thread may ask, or be called back.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "base/locks.hpp"

namespace zerohop::engine {

class Done {
 public:
  // What it is the end of is written before set(), and read after this.
  bool is() const noexcept { return done_.load(std::memory_order_acquire); }

  using Id = std::uint64_t;

  // Calls `callback` once, when it is over: at once if it is already, else in the thread that ends
  // it, which may hold locks of the engine: the callback only passes the word on.
  Id on_set(std::function<void()> callback) {
    {
      const std::lock_guard lock(mutex_);
      if (!is()) {
        callbacks_.emplace(++last_, std::move(callback));
        return last_;
      }
    }
    callback();
    return 0;
  }
  // Who asked to be called no longer wants it. It may be called at this moment.
  void forget(Id id) noexcept {
    const std::lock_guard lock(mutex_);
    callbacks_.erase(id);
  }

  void set() noexcept {
    std::map<Id, std::function<void()>> callbacks;
    {
      const std::lock_guard lock(mutex_);
      done_.store(true, std::memory_order_release);
      callbacks.swap(callbacks_);
    }
    for (const auto& [id, callback] : callbacks) callback();
  }
  // The same, where nobody else knows of it yet.
  void set_at_once() noexcept { done_.store(true, std::memory_order_release); }

 private:
  std::atomic<bool> done_{false};
  Mutex<Rank::transfer> mutex_;
  Id last_ = 0;
  std::map<Id, std::function<void()>> callbacks_;
};

}  // namespace zerohop::engine
