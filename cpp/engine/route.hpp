// Which way the bytes of a transfer go, and why.
#pragma once

#include <string>
#include <vector>

#include "engine/settings.hpp"

namespace zerohop::engine {

struct Route {
  std::string kind;    // "p2p", "gpudirect", "staged" or "host"
  std::string device;  // that serves it: "soft0", "mlx5_0"
  std::string reason;  // one sentence
  Settings settings;   // of its queue pair; only where a route was asked for, not in transfers
  std::vector<Settings> rails{};  // as settings, of every queue pair where there are several
};

}  // namespace zerohop::engine
