// A listening socket and its connections that have not yet identified themselves.
//
// Those are bounded in number and in time: a flood of connections neither uses up the program's
// descriptors nor keeps honest peers out.
#pragma once

#include <chrono>
#include <cstddef>
#include <unordered_map>
#include <utility>

#include "base/unique_fd.hpp"

namespace zerohop {

// Not thread-safe.
class Acceptor {
 public:
  using Clock = std::chrono::steady_clock;

  struct Limits {
    int at_once;               // accepted per call; then greetings are read
    std::size_t most_pending;  // at most a quarter of this process's descriptor limit; at
                               // the limit, each new connection evicts one
    Clock::duration patience;  // from accept until the greeting must be there
  };

  // What a listener does with its connections. Called only from accept() and look().
  class Owner {
   public:
    // The connection is pending until settle(), which may be called here. Throwing closes it.
    virtual void admit(UniqueFd connection) = 0;
    // Closes a pending connection.
    virtual void turn_away(int fd, const char* why) = 0;
    // Watches the listener, or stops: connections left unaccepted would wake the thread for ever.
    virtual void watch_listener(bool watched) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  // The listener must be non-blocking, and the owner already watches it.
  Acceptor(UniqueFd listener, const Limits& limits, Owner& owner)
      : listener_(std::move(listener)), limits_(limits), owner_(owner) {}

  int fd() const noexcept { return listener_.get(); }
  void close() noexcept { listener_.reset(); }

  // Call when the listener is readable. Throws Error when the system is out of a resource, and
  // whatever admit() throws; after that nothing is accepted until look() resumes it.
  void accept();
  // The connection is no longer pending: it identified itself, or it closed.
  void settle(int fd) noexcept { pending_.erase(fd); }
  // The connection has sent a greeting. Until `until`, connections without one are evicted first.
  void prefer(int fd, Clock::time_point until) noexcept;
  std::size_t pending() const noexcept { return pending_.size(); }

  // Call periodically: evicts overdue connections, and accepts again after a pause. Returns when
  // the next call is due; max() when nothing is pending.
  Clock::time_point look(Clock::time_point now);

 private:
  struct Pending {
    Clock::time_point came;
    Clock::time_point until;
    bool preferred = false;
  };
  using All = std::unordered_map<int, Pending>;

  void make_room();
  All::iterator pick(bool preferred) noexcept;
  void rest() noexcept;

  UniqueFd listener_;
  const Limits limits_;
  Owner& owner_;
  All pending_;              // key: descriptor
  Clock::time_point rests_;  // accepting pauses until then; zero: it accepts
};

// Accepts one waiting connection, non-blocking; empty with errno set otherwise (EAGAIN: none
// waits). Skips connections that failed before accept (man 2 accept).
UniqueFd accept_connection(int listener);

}  // namespace zerohop
