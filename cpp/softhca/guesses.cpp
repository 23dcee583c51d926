#include "softhca/guesses.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>

namespace zerohop::softhca {

in_addr other_end(int socket) noexcept {
  sockaddr_in address{};
  socklen_t nbytes = sizeof address;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &nbytes) != 0) return {};
  return address.sin_family == AF_INET ? address.sin_addr : in_addr{};
}

// All of 127/8 is this host, whichever of its addresses it connects from.
std::size_t Guesses::place_of(in_addr host) noexcept {
  std::uint32_t number = ::ntohl(host.s_addr);
  if (number >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET) number = INADDR_LOOPBACK;
  return (number * 0x9e3779b1u) >> 24;  // Fibonacci hashing: the upper 8 bits depend on all others
}

void Guesses::add(in_addr from, Clock::time_point now) noexcept {
  Place& place = empty_at_[place_of(from)];
  const Clock::time_point most = now + kFree * kEach + kLongest;
  Clock::rep before = place.load(std::memory_order_relaxed);
  Clock::rep after = 0;
  do {
    const Clock::time_point empty_at{Clock::duration(before)};
    after = std::min<Clock::time_point>(std::max(empty_at, now) + kEach, most)
                .time_since_epoch()
                .count();
  } while (!place.compare_exchange_weak(before, after, std::memory_order_relaxed));
}

bool Guesses::wait(in_addr host, Clock::time_point now) const noexcept {
  const Clock::rep empty_at = empty_at_[place_of(host)].load(std::memory_order_relaxed);
  return Clock::time_point(Clock::duration(empty_at)) > now + kFree * kEach;
}

void Guesses::forget() noexcept {
  for (Place& place : empty_at_) place.store(0, std::memory_order_relaxed);
}

}  // namespace zerohop::softhca
