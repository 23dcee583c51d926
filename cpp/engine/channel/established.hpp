// How many connections were ever made with each peer, by which two that cross are told apart.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "engine/channel/address.hpp"

namespace zerohop::engine {

// One thread. Peers that left long ago are forgotten, so that a server of changing clients does not
// grow: to who is not connected, and will not try one again that it does not know to be over, a
// count from 0 on says the same.
class Established {
 public:
  using Clock = std::chrono::steady_clock;

  std::uint32_t count(const EndpointId& id) const {
    const auto known = counts_.find(id);
    return known == counts_.end() ? 0 : known->second.count;
  }
  // is_connected(id): who is stays.
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
  // Longer than either end takes to see that a connection is over.
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
