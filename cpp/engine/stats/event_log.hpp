// The latest events of an Endpoint's devices, kept for later queries.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/locks.hpp"

namespace zerohop::engine {

struct DeviceEvent {
  std::chrono::system_clock::time_point at;  // set by add()
  std::string device;
  std::string type;     // "PORT_ERR": ibv_event_type without its prefix
  int port = 0;         // 0 unless it concerns a port
  std::string peer;     // whose queue pair it concerns; empty: none, or unknown
  std::string message;  // what, where, cause and remedy
};

class EventLog {
 public:
  static constexpr std::size_t kMost = 64;  // older ones are dropped

  void add(DeviceEvent event) {
    event.at = std::chrono::system_clock::now();
    const std::lock_guard lock(mutex_);
    if (events_.size() == kMost) events_.pop_front();
    events_.push_back(std::move(event));
  }
  std::vector<DeviceEvent> all() const {  // newest last
    const std::lock_guard lock(mutex_);
    return {events_.begin(), events_.end()};
  }

 private:
  mutable Mutex<Rank::event_log> mutex_;
  std::deque<DeviceEvent> events_;
};

}  // namespace zerohop::engine
