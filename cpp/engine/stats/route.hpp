// The route of a transfer's bytes, and why it was chosen.
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
  std::string kind;               // "p2p", "gpudirect", "staged" or "host"
  std::string device;             // that serves it: "soft0", "mlx5_0"
  std::string reason;             // one sentence
  Settings settings;              // of its queue pair; only for a route query, not in transfers
  std::vector<Settings> rails{};  // the settings of each queue pair, if there are several
  // PCI addresses of the two GPUs that it joins, if there are two and both are known: the reason
  // ends with them, so that the topology between them can be appended.
  std::optional<std::pair<std::string, std::string>> gpus{};
  std::shared_ptr<RouteStats> stats{};  // of the transfers that take it
};

}  // namespace zerohop::engine
