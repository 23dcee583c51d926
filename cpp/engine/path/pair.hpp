// The arrays that one call moves: each of this end with one of the peer's.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/runs.hpp"
#include "engine/memory/memory.hpp"
#include "engine/memory/remote_memory.hpp"
#include "engine/wait/transfer.hpp"

namespace zerohop::engine {

using Pair = std::pair<const Memory*, const RemoteMemory*>;
using Transferring = std::shared_ptr<Transfer>;

inline RemoteAccess needed_by(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_RDMA_WRITE ? kRemoteWrite : kRemoteRead;
}

inline bool touch_gpus(std::span<const Pair> pairs) {
  return std::ranges::any_of(
      pairs, [](const Pair& pair) { return !pair.first->on_host() || !pair.second->on_host(); });
}

// For two arrays that are one range each; otherwise, or if empty, nbytes is 0.
inline Run single_run(const Pair& pair) {
  const Layout& local = pair.first->layout();
  const Layout& remote = pair.second->layout;
  if (!local.is_contiguous() || !remote.is_contiguous()) return {};
  return {local.address, remote.address, local.nbytes()};
}

// Call it before others can end the transfer.
inline void count_begin(Transfer& transfer, ibv_wr_opcode opcode, bool data, bool notifies,
                        const std::string& peer) noexcept {
  if (notifies) RouteStats::add(transfer.route().stats->notifications, 1);
  transfer.count(!data                         ? Operation::notify
                 : opcode == IBV_WR_RDMA_WRITE ? Operation::write
                                               : Operation::read,
                 peer);
}

}  // namespace zerohop::engine
