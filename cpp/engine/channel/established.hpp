// The number of connections ever made with each peer; resolves connections that cross.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "engine/channel/address.hpp"

namespace zerohop::engine {

// Not thread-safe. Forgets peers that left long ago, so that a server with changing clients does
// not grow. A count that restarts at 0 is equivalent for a peer that is not connected and will not
// retry a connection that it believes alive.
class Established {
 public:
  using Clock = std::chrono::steady_clock;

  std::uint32_t count(const EndpointId& id) const {
    const auto known = counts_.find(id);
    return known == counts_.end() ? 0 : known->second.count;
  }
  // is_connected(id): connected peers are kept.
  void add(const EndpointId& id, const std::function<bool(const EndpointId&)>& is_connected,
           Clock::time_point now = Clock::now()) {
    if (counts_.size() >= next_sweep_) {
      std::erase_if(counts_, [&](const auto& entry) {
        return now - entry.second.last > kKept && !is_connected(entry.first);
      });
      next_sweep_ = std::max<std::size_t>(kFirstSweep, 2 * counts_.size());
    }
    Entry& entry = counts_[id];
    ++entry.count;
    entry.last = now;
  }
  std::size_t size() const noexcept { return counts_.size(); }

 private:
  // Longer than either end needs to detect that a connection is over.
  static constexpr std::chrono::seconds kKept{60};
  static constexpr std::size_t kFirstSweep = 256;

  struct Entry {
    std::uint32_t count = 0;
    Clock::time_point last{};
  };
  std::map<EndpointId, Entry> counts_;
  std::size_t next_sweep_ = kFirstSweep;
};

}  // namespace zerohop::engine
