// Which way the bytes of a transfer go, and why.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/settings.hpp"
#include "engine/stats/route_stats.hpp"

namespace zerohop::engine {

struct Route {
  std::string kind;    // "p2p", "gpudirect", "staged" or "host"
  std::string device;  // that serves it: "soft0", "mlx5_0"
  std::string reason;  // one sentence
  Settings settings;   // of its queue pair; only where a route was asked for, not in transfers
  std::vector<Settings> rails{};  // as settings, of every queue pair where there are several
  // PCI addresses of the two GPUs that it joins, if they are two and known: the reason ends with
  // them, and what lies between can be put behind it.
  std::optional<std::pair<std::string, std::string>> gpus{};
  std::shared_ptr<RouteStats> stats{};  // of the transfers that take it
};

}  // namespace zerohop::engine
