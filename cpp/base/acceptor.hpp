// The listening end of a socket, and the connections that have not yet said who they are.
//
// Those are bounded in number and in time: a crowd before the door neither keeps the program from
// opening files, nor honest peers from coming in.
#pragma once

#include <chrono>
#include <cstddef>
#include <unordered_map>
#include <utility>

#include "base/unique_fd.hpp"

namespace zerohop {

// One thread.
class Acceptor {
 public:
  using Clock = std::chrono::steady_clock;

  struct Limits {
    int at_once;               // accepted in one go; then those who have said something are heard
    std::size_t most_pending;  // of these, never more than a quarter of the descriptors that this
                               // process may have; one goes when one more comes
    Clock::duration patience;  // from accept until it must have said who it is
  };

  // What a listener does with its connections. All of it is called by accept() and look().
  class Owner {
   public:
    // It is pending until settle(), which may be called here. Throwing closes it.
    virtual void admit(UniqueFd connection) = 0;
    // Closes one that is pending.
    virtual void turn_away(int fd, const char* why) = 0;
    // Watches the listener, or does not for now: what is not accepted would wake it for ever.
    virtual void watch_listener(bool watched) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  // The listener does not block, and the owner watches it already.
  Acceptor(UniqueFd listener, const Limits& limits, Owner& owner)
      : listener_(std::move(listener)), limits_(limits), owner_(owner) {}

  int fd() const noexcept { return listener_.get(); }
  void close() noexcept { listener_.reset(); }

  // When the listener is readable. Throws Error when the system is out of something, and what
  // admit() throws: no more are accepted then until look() says so.
  void accept();
  // It is pending no more: it has said who it is, or has gone.
  void settle(int fd) noexcept { pending_.erase(fd); }
  // It has said something, which counts until then: those that have not go first.
  void prefer(int fd, Clock::time_point until) noexcept;
  std::size_t pending() const noexcept { return pending_.size(); }

  // To be called now and then: turns away who is late, and accepts again after a rest. When there
  // will be something to do next; max(): nothing is pending.
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
  All pending_;              // by descriptor
  Clock::time_point rests_;  // until then; none: it accepts
};

// One connection that waits, not blocking; or none with errno set: EAGAIN where none waits. One
// that failed on its way (man 2 accept) is passed over.
UniqueFd accept_connection(int listener);

}  // namespace zerohop
