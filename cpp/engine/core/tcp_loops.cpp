#include "engine/core/tcp_loops.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/error.hpp"
#include "base/spin_wait.hpp"

namespace zerohop::engine {
namespace {

using Clock = Deadline::Clock;

// Whether the socket would have blocked. Throws on any other error.
bool would_block(ssize_t result) {
  if (result > 0) return false;
  if (result == 0) throw PeerLost("the other side closed the TCP connection of the benchmark");
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return true;
  throw PeerLost(errno_message("the TCP connection of the benchmark broke", errno), errno);
}

// Repeats `attempt`, a non-blocking call that returns a count, until it makes progress: polls for
// `spin` as Poller::wait() does, then sleeps.
template <typename Attempt, typename Sleep>
std::size_t persist(Attempt attempt, std::chrono::microseconds spin, Sleep sleep) {
  for (SpinWait wait(spin);;) {
    const ssize_t count = attempt();
    if (!would_block(count)) return static_cast<std::size_t>(count);
    if (!wait.pause()) sleep();
  }
}

}  // namespace

void TcpLoops::ping_pong(std::span<std::byte> buffer, std::span<double> seconds, bool first,
                         const Deadline& deadline) const {
  for (double& half : seconds) {
    const auto begin = Clock::now();
    if (first) send_all(buffer, deadline);
    receive_all(buffer, deadline);
    if (!first) send_all(buffer, deadline);
    half = Deadline::Seconds(Clock::now() - begin).count() / 2;
  }
}

void TcpLoops::stream_out(std::span<const std::byte> buffer, std::size_t times,
                          const Deadline& deadline) const {
  for (std::size_t i = 0; i < times; ++i) send_all(buffer, deadline);
  std::array<std::byte, 1> receipt;
  receive_all(receipt, deadline);
}

void TcpLoops::stream_in(std::span<std::byte> buffer, std::size_t times,
                         const Deadline& deadline) const {
  for (std::size_t i = 0; i < times; ++i) receive_all(buffer, deadline);
  const std::array<std::byte, 1> receipt{};
  send_all(receipt, deadline);
}

void TcpLoops::send_all(std::span<const std::byte> bytes, const Deadline& deadline) const {
  while (!bytes.empty()) {
    bytes = bytes.subspan(persist(
        [&] { return ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL); }, spin_,
        [&] { sleep_until(POLLOUT, deadline); }));
  }
}

void TcpLoops::receive_all(std::span<std::byte> bytes, const Deadline& deadline) const {
  while (!bytes.empty()) {
    bytes =
        bytes.subspan(persist([&] { return ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT); },
                              spin_, [&] { sleep_until(POLLIN, deadline); }));
  }
}

void TcpLoops::sleep_until(short events, const Deadline& deadline) const {
  pollfd wanted{fd_, events, 0};
  if (::poll(&wanted, 1, deadline.remaining_ms()) == 0 && deadline.passed()) {
    throw TransferTimeout("the TCP loop of the benchmark did not end in time: raise its timeout");
  }
}

}  // namespace zerohop::engine
