// A local array and the peer's array that it is copied to or from.
#pragma once

#include <algorithm>
#include <span>

#include "base/runs.hpp"
#include "engine/memory/memory.hpp"
#include "engine/memory/remote_memory.hpp"

namespace zerohop::engine {

struct Pair {
  const Memory* local;
  const RemoteMemory* remote;
};

inline bool touch_gpus(std::span<const Pair> pairs) {
  return std::ranges::any_of(
      pairs, [](const Pair& pair) { return !pair.local->on_host() || !pair.remote->on_host(); });
}

// For two arrays that are one range each; otherwise, or if empty, nbytes is 0.
inline Run single_run(const Pair& pair) {
  const Layout& local = pair.local->layout();
  const Layout& remote = pair.remote->layout;
  if (!local.is_contiguous() || !remote.is_contiguous()) return {};
  return {local.address, remote.address, local.nbytes()};
}

}  // namespace zerohop::engine
