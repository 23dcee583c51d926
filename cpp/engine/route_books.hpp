// What was counted with all Peers that an Endpoint has and had.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/route_stats.hpp"

namespace zerohop::engine {

class RouteBooks {
 public:
  struct Connection {
    std::string peer;  // its name
    std::shared_ptr<const RouteBook> book;
    std::optional<std::string> ended;  // why; nullopt: it is there
  };
  struct Reading {
    std::map<RouteBook::Name, std::shared_ptr<RouteStats>> sums;  // of all that ever were
    std::vector<Connection> connections;                          // those that ended first
  };
  // So that it is seen where errors came from. Of those before them there are sums alone: an
  // Endpoint may have had millions of visitors.
  static constexpr std::size_t kEndedKept = 64;

  std::shared_ptr<RouteBook> open();  // for a Peer that is not connected yet, and may never be
  void connected(const std::shared_ptr<RouteBook>& book, std::string peer);
  // What is under way by it may still end.
  void ended(const std::shared_ptr<RouteBook>& book, std::string why);
  Reading read() const;

 private:
  struct Open {
    std::weak_ptr<RouteBook> book;
    std::optional<std::string> peer{};  // once connected
  };
  Open* find(const std::shared_ptr<RouteBook>& book);

  mutable std::mutex mutex_;
  std::vector<Open> open_;
  std::deque<Connection> ended_;  // the oldest first
  RouteBook earlier_;
};

}  // namespace zerohop::engine
