// What threads are making just now, each in a call of a driver that may take seconds. No lock is
// held meanwhile: who wants the same waits for that one, and nobody waits for another.
#pragma once

#include <algorithm>
#include <list>
#include <mutex>

#include "base/deadline.hpp"
#include "base/locks.hpp"

namespace zerohop::engine {

// Wanted has `bool covers(const Wanted& other) const`: what is made for it serves the other, too.
template <Rank rank, typename Wanted>
class Pending {
 public:
  // While it lives, others who want what it covers wait.
  class Claim {
   public:
    // Waits for those that cover it, until the deadline: then it is made twice, unless the driver
    // refuses that.
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
    std::list<Wanted> mine_;  // before and after it is among all
    typename std::list<Wanted>::iterator at_;
  };

 private:
  Mutex<rank> mutex_;  // guards the next two
  Condition changed_;
  std::list<Wanted> pending_;  // as many as threads make something
};

}  // namespace zerohop::engine
