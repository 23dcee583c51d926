// A bare TCP ping-pong and stream for the benchmark: what a socket alone costs under the waiting
// policy of zerohop (spin first, then sleep), with nothing in between.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include "base/deadline.hpp"

namespace zerohop::engine {

class TcpLoops {
 public:
  // `fd`: a connected stream socket with TCP_NODELAY, owned by the caller. `spin`: how long a wait
  // polls the socket before it sleeps in poll(2).
  TcpLoops(int fd, std::chrono::microseconds spin) noexcept : fd_(fd), spin_(spin) {}

  // Sends `buffer` back and forth once per element of `seconds`, which receives half of each round
  // trip. Exactly one side is `first`. Throws PeerLost or TransferTimeout, as all of these do.
  void ping_pong(std::span<std::byte> buffer, std::span<double> seconds, bool first,
                 const Deadline& deadline) const;

  // Sends `buffer` `times` times and returns when the receiver, in stream_in, has all of it.
  void stream_out(std::span<const std::byte> buffer, std::size_t times,
                  const Deadline& deadline) const;
  void stream_in(std::span<std::byte> buffer, std::size_t times, const Deadline& deadline) const;

 private:
  void send_all(std::span<const std::byte> bytes, const Deadline& deadline) const;
  void receive_all(std::span<std::byte> bytes, const Deadline& deadline) const;
  void sleep_until(short events, const Deadline& deadline) const;

  int fd_;
  std::chrono::microseconds spin_;
};

}  // namespace zerohop::engine
