// One call of the user that moves arrays between this process and a peer.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/memory/pages.hpp"
#include "engine/memory/pair.hpp"
#include "engine/path/transfer_options.hpp"
#include "engine/wait/transfer.hpp"

namespace zerohop::engine {

using TransferPtr = std::shared_ptr<Transfer>;

inline RemoteAccess needed_by(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_RDMA_WRITE ? kRemoteWrite : kRemoteRead;
}

// A view: its creator keeps alive all that it refers to.
struct Call {
  ibv_wr_opcode opcode;         // IBV_WR_RDMA_WRITE or IBV_WR_RDMA_READ
  std::span<const Pair> pairs;  // empty: a notification alone
  const TransferOptions& options;
  const Pages* pages = nullptr;  // the parts of the only pair that move; null: whole arrays
  bool on_gpus = touch_gpus(pairs);

  bool is_write() const noexcept { return opcode == IBV_WR_RDMA_WRITE; }
  RemoteAccess needed() const noexcept { return needed_by(opcode); }
  std::uint64_t nbytes() const {
    if (pages != nullptr) return pages->nbytes();
    std::uint64_t sum = 0;
    for (const Pair& pair : pairs) sum += pair.local->layout().nbytes();
    return sum;
  }
};

// Call it before others can end the transfer.
inline void count_operation(Transfer& transfer, ibv_wr_opcode opcode, bool data, bool notifies,
                            const std::string& peer) noexcept {
  if (notifies) RouteStats::add(transfer.route().stats->notifications, 1);
  transfer.count(!data                         ? Operation::notify
                 : opcode == IBV_WR_RDMA_WRITE ? Operation::write
                                               : Operation::read,
                 peer);
}

}  // namespace zerohop::engine
