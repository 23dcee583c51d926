// Objects that threads are currently creating, each in a driver call that may take seconds. No lock
// is held meanwhile: a thread that wants the same object waits for it, others do not wait.
#pragma once

#include <algorithm>
#include <list>
#include <mutex>

#include "base/deadline.hpp"
#include "base/locks.hpp"

namespace zerohop::engine {

// Wanted has `bool covers(const Wanted& other) const`: what is created for it also serves the
// other.
template <Rank rank, typename Wanted>
class Pending {
 public:
  // While it lives, other threads that want what it covers wait.
  class Claim {
   public:
    // Waits for claims that cover it, until the deadline; after that the object is created twice,
    // unless the driver refuses.
    Claim(Pending& all, const Wanted& wanted, const Deadline& deadline)
        : all_(all), mine_{wanted}, at_(mine_.begin()) {
      const auto covers = [&](const Wanted& one) { return one.covers(wanted); };
      std::unique_lock lock(all_.mutex_);
      all_.changed_.wait_until(lock, deadline.at(),
                               [&] { return std::ranges::none_of(all_.pending_, covers); });
      all_.pending_.splice(all_.pending_.end(), mine_);
    }
    ~Claim() {
      {
        const std::lock_guard lock(all_.mutex_);
        mine_.splice(mine_.end(), all_.pending_, at_);
      }
      all_.changed_.notify_all();
    }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

   private:
    Pending& all_;
    std::list<Wanted> mine_;  // outside pending_ before and after
    typename std::list<Wanted>::iterator at_;
  };

 private:
  Mutex<rank> mutex_;  // guards the next two
  Condition changed_;
  std::list<Wanted> pending_;  // one for each thread that creates something
};

}  // namespace zerohop::engine
