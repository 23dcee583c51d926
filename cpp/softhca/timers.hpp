// Wake-ups of one device context: RNR waits, redials, deadlines. One timerfd in the epoll set is
// set to the earliest, so polling the sockets also serves the timers, without reading a clock.
#pragma once

#include <chrono>

#include "base/locks.hpp"
#include "base/unique_fd.hpp"
#include "softhca/epoll.hpp"

namespace zerohop::softhca {

using Clock = std::chrono::steady_clock;

// An object with at most one pending wake-up.
class Timed {
 public:
  virtual void on_time() noexcept = 0;  // called with Context::control held

  // For Timers only, under its lock; intrusive, because setting a wake-up must not allocate.
  struct Link {
    Timed* next = nullptr;
    Timed* previous = nullptr;
    bool queued = false;
    Clock::time_point due{};
  } link;

 protected:
  ~Timed() = default;
};

class Timers final : public Watched {
 public:
  explicit Timers(Epoll& poller);  // throws Error
  ~Timers();
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  void set(Timed& timed, Clock::time_point due) noexcept;  // replaces a pending one
  void cancel(Timed& timed) noexcept;
  void on_ready(std::uint32_t ready) noexcept override;

 private:
  void unlink(Timed& timed) noexcept;
  Timed* take_due(Clock::time_point now) noexcept;
  void program(Clock::time_point due) noexcept;

  Epoll& poller_;
  UniqueFd fd_;
  Mutex<Rank::softhca_timers> mutex_;
  Timed* first_ = nullptr;  // unsorted: few wake-ups are pending at a time
  Clock::time_point programmed_ = Clock::time_point::max();
};

}  // namespace zerohop::softhca
