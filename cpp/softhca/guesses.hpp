// Memory requests with a wrong key. As on an adapter, each one breaks its queue pair. A host that
// reconnects to try the next key must wait, so that keys cannot be guessed one after the other.
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

// A leaky bucket per host: 64 wrong requests are free, then four a second; with several queue
// pairs, two a second each. So honest programs with a mistake notice nothing, and a delayed host is
// soon admitted again. Any thread; neither locks nor allocates.
class Guesses {
 public:
  // Records one more from that host.
  void add(in_addr from, Clock::time_point now = Clock::now()) noexcept;
  // Whether connections with that host must wait; the dialling side then tries again.
  bool wait(in_addr host, Clock::time_point now = Clock::now()) const noexcept;
  void forget() noexcept;  // resets all buckets

  static constexpr int kFree = 64;
  static constexpr std::chrono::milliseconds kEach{250};
  // Less than the minimum time before a queue pair of soft0 gives up (Connection).
  static constexpr std::chrono::milliseconds kLongest{500};

 private:
  using Place = std::atomic<Clock::rep>;  // when the bucket becomes empty

  static std::size_t place_of(in_addr host) noexcept;

  std::array<Place, 256> empty_at_{};  // hosts may share one
};

}  // namespace zerohop::softhca
