// The TCP connection of one queue pair, from finding the peer to closing.
//
// The side with the lower (GID, queue pair number) dials once its owner has set the peer (RTR); the
// other waits to be dialled. Both send a hello (hello.hpp); data flows only after each has received
// the hello it expects. Everything here is called with QueuePair::lock held.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>

#include "base/unique_fd.hpp"
#include "softhca/hello.hpp"
#include "softhca/timers.hpp"

namespace zerohop::softhca {

class QueuePair;

enum class Verdict { yes, later, no };  // of a hello: fits, cannot be judged yet, does not fit

class Connection {
 public:
  explicit Connection(QueuePair& qp) : qp_(qp) {}

  int fd() const noexcept { return fd_.get(); }
  bool is_open() const noexcept { return phase_ == Phase::open; }
  bool wants_write() const noexcept { return wants_write_; }

  void expect_peer() noexcept;      // in RTR: dials, or waits to be dialled
  void confirm_own_psn() noexcept;  // in RTS: drops a peer that expects another sq_psn
  Verdict judge(const Hello& hello) const noexcept;
  void adopt(UniqueFd fd, const Hello& hello) noexcept;  // a connection whose hello fits
  void start_retry_budget() noexcept;                    // work was posted without a connection
  void on_ready() noexcept;                              // in every phase but open
  void on_time() noexcept;                               // in every phase but open
  void want_write(bool wanted) noexcept;  // whether to wake when the socket accepts bytes again

  void want_read(bool wanted) noexcept;  // whether to wake when there is something to read

  bool discard_input() noexcept;  // reads and drops; false at the end of the stream
  void linger() noexcept;         // nothing left to send: lets the peer read the last bytes
  void close() noexcept;

 private:
  enum class Phase { closed, waiting, dialling, greeting, backing_off, open, lingering };

  bool dials() const noexcept;
  bool fits(const Hello& hello) const noexcept;
  Hello own_hello() const noexcept;
  bool say_hello() noexcept;
  void dial() noexcept;
  void greet() noexcept;
  void hear_welcome() noexcept;
  void open() noexcept;
  void redial_later() noexcept;
  void schedule(Clock::time_point action) noexcept;
  void drop_socket() noexcept;
  void watch() noexcept;

  QueuePair& qp_;
  UniqueFd fd_;
  Phase phase_ = Phase::closed;
  bool wants_write_ = false;
  bool wants_read_ = true;
  Hello heard_{};
  std::size_t heard_nbytes_ = 0;
  std::chrono::milliseconds backoff_{0};
  Clock::time_point action_ = Clock::time_point::max();   // redial, or end of lingering
  Clock::time_point give_up_ = Clock::time_point::max();  // end of the retry budget
};

}  // namespace zerohop::softhca
