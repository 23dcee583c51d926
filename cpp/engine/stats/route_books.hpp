// What was counted with all Peers that an Endpoint has and had.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/locks.hpp"
#include "engine/stats/route_stats.hpp"

namespace zerohop::engine {

class RouteBooks {
 public:
  using Sums = std::map<RouteBook::Name, std::shared_ptr<RouteStats>>;
  // One that is there; or all that ended of one name, so that sums by name do not fall.
  struct Connection {
    std::string peer;                  // its name
    std::optional<std::string> ended;  // why the last did; nullopt: it is there
    Sums sums{};
  };
  struct Reading {
    Sums sums;                            // of all that ever were
    std::vector<Connection> connections;  // those that ended first
  };
  // Names: so that it is seen where errors came from. Of those before them there are sums alone: an
  // Endpoint may have had millions of clients.
  static constexpr std::size_t kEndedKept = 64;

  std::shared_ptr<RouteBook> open();  // for a Peer that is not connected yet, and may never be
  void connected(const std::shared_ptr<RouteBook>& book, std::string peer);
  // What is under way by it may still end.
  void ended(const std::shared_ptr<RouteBook>& book, std::string why);
  Reading read() const;

 private:
  struct Ended {
    std::string peer;
    std::string why;
    std::shared_ptr<const RouteBook> book;  // of the last of that name
    std::shared_ptr<RouteBook> before;      // sums of those before it
  };
  struct Open {
    std::weak_ptr<RouteBook> book;
    std::optional<std::string> peer{};  // once connected
  };
  Open* find(const std::shared_ptr<RouteBook>& book);

  mutable Mutex<Rank::route_books> mutex_;
  std::vector<Open> open_;
  std::deque<Ended> ended_;  // the oldest first
  RouteBook earlier_;
};

}  // namespace zerohop::engine
