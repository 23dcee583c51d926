// Access of this process's kernels to a peer through devices.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/memory/memory.hpp"
#include "engine/path/verbs/direct_queue_pair.hpp"
#include "engine/stats/route.hpp"

namespace zerohop::engine {

// For entries that kernels write and others execute.
struct EntryReach {
  std::shared_ptr<const Registration> local;
  bool puts = false;
  bool gets = false;
  bool atomics = false;
  std::shared_ptr<const Route> route;
};

// For a queue pair that kernels drive themselves.
struct DirectReach {
  EntryReach entries;
  std::shared_ptr<const DirectQueuePair> queue_pair;  // connected
  std::uint32_t local_key = 0;
  std::uint32_t remote_key = 0;
  std::uint64_t slots = 0;  // address of slot 0 of the peer's board; its key follows
  std::uint32_t slots_key = 0;
  bool flushes = false;  // a read stands between data and notification (zerohop/ring_way.h)
  std::shared_ptr<const void> target;  // keeps the other end alive
};

}  // namespace zerohop::engine
