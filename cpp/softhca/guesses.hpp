// Requests for memory with a wrong key. As on an adapter, each ends its queue pair; who connects
// again to try the next key is made to wait, so that keys cannot be guessed one after the other.
#pragma once

#include <netinet/in.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>

#include "softhca/timers.hpp"

namespace zerohop::softhca {

// The host at the other end of a connection (IPv4); none: 0.0.0.0.
in_addr other_end(int socket) noexcept;

// A leaky bucket for each host: 64 wrong requests are free, and then four a second; with several
// queue pairs two a second each. So honest programs that make a mistake feel nothing, and a host
// that was told to wait is let in again soon. Any thread; neither locks nor allocates.
class Guesses {
 public:
  // One more came from that host.
  void add(in_addr from, Clock::time_point now = Clock::now()) noexcept;
  // Whether connections with that host have to wait: who dials tries again.
  bool wait(in_addr host, Clock::time_point now = Clock::now()) const noexcept;
  void forget() noexcept;  // all of them

  static constexpr int kFree = 64;
  static constexpr std::chrono::milliseconds kEach{250};
  // Less than a queue pair of soft0 waits at least until it gives up (Connection).
  static constexpr std::chrono::milliseconds kLongest{500};

 private:
  using Place = std::atomic<Clock::rep>;  // when the bucket is empty, since the clock's beginning

  static std::size_t place_of(in_addr host) noexcept;

  std::array<Place, 256> empty_at_{};  // hosts may share one
};

}  // namespace zerohop::softhca
