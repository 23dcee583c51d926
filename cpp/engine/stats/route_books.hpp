// Counters of all current and former Peers of an Endpoint.
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
  // A current connection, or all ended ones of one name combined, so that sums by name never fall.
  struct Connection {
    std::string peer;                  // the peer's name
    std::optional<std::string> ended;  // why the last one ended; nullopt: current
    Sums sums{};
  };
  struct Reading {
    Sums sums;                            // of all connections ever
    std::vector<Connection> connections;  // ended ones first
  };
  // Ended names kept, to show where errors came from. Older ones are counted only in the sums: an
  // Endpoint may have had millions of clients.
  static constexpr std::size_t kEndedKept = 64;

  std::shared_ptr<RouteBook> open();  // for a Peer that is not connected yet, and may never be
  void connected(const std::shared_ptr<RouteBook>& book, std::string peer);
  // Its transfers in progress may still end.
  void ended(const std::shared_ptr<RouteBook>& book, std::string why);
  Reading read() const;

 private:
  struct Ended {
    std::string peer;
    std::string why;
    std::shared_ptr<const RouteBook> book;  // of the last connection of that name
    std::shared_ptr<RouteBook> before;      // sums of the earlier ones
  };
  struct Open {
    std::weak_ptr<RouteBook> book;
    std::optional<std::string> peer{};  // once connected
  };
  Open* find(const std::shared_ptr<RouteBook>& book);

  mutable Mutex<Rank::route_books> mutex_;
  std::vector<Open> open_;
  std::deque<Ended> ended_;  // oldest first
  RouteBook earlier_;
};

}  // namespace zerohop::engine
