// The routes of a Peer, each described once.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/locks.hpp"
#include "engine/rail.hpp"
#include "engine/stats/route.hpp"

namespace zerohop::engine {

class Routes {
 public:
  // gpu: gpudirect, or copied by the software HCA; staged: copied by both Endpoints.
  enum class Kind { host, gpu, staged };
  using RoutePtr = std::shared_ptr<const Route>;

  Routes(const Rails& rails, std::shared_ptr<RouteBook> book);

  // Over at least one rail. Between host memories over a single rail it neither allocates nor
  // locks.
  RoutePtr over(Kind kind, RailMask mask) const;

 private:
  RoutePtr make(Kind kind, RailMask mask) const;

  const Rails rails_;
  const std::shared_ptr<RouteBook> book_;
  std::vector<RoutePtr> host_;         // by rail
  mutable Mutex<Rank::routes> mutex_;  // guards the next
  mutable std::map<std::pair<Kind, RailMask>, RoutePtr> others_;
};

}  // namespace zerohop::engine
