// What kernels of this process reach at a peer by devices.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/memory/memory.hpp"
#include "engine/path/verbs/direct_queue_pair.hpp"
#include "engine/stats/route.hpp"

namespace zerohop::engine {

// Where entries that kernels write are carried out for them.
struct EntryReach {
  std::shared_ptr<const Pinned> local;
  bool puts = false;
  bool gets = false;
  bool atomics = false;
  std::shared_ptr<const Route> route;
};

// Where kernels drive a queue pair by themselves.
struct DirectReach {
  EntryReach entries;
  std::shared_ptr<const DirectQueuePair> queue_pair;  // connected
  std::uint32_t local_key = 0;
  std::uint32_t remote_key = 0;
  std::uint64_t slots = 0;  // of the peer's board: where it has slot 0, and the key to them
  std::uint32_t slots_key = 0;
  std::shared_ptr<const void> target;  // the other end, as long as this lives
};

}  // namespace zerohop::engine
