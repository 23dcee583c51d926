// What a Peer moves to and from GPU memory that no device reaches, and how messages follow that.
#include <utility>

#include "base/error.hpp"
#include "engine/peer/peer.hpp"

namespace zerohop::engine {

// Any memory at this end is copied through a ring: the peer's GPU is all that matters then.
StagedPiece Peer::make_staged_piece(const Pair& pair, RemoteAccess needed,
                                    Transfer& transfer) const {
  check_pair(pair, needed);
  const auto& [local, remote] = pair;
  auto pinned = local->pinned();
  StagedPiece piece{.near = local->layout(),
                    .far = remote->layout,
                    .gpu = pinned->device,
                    .by = remote->staged() ? StagedPiece::By::owner : StagedPiece::By::device,
                    .rkeys = remote->rkeys,
                    .key = remote->staged_key};
  transfer.keep(std::move(pinned));
  return piece;
}

Peer::Transferring Peer::stage(ibv_wr_opcode opcode, std::span<const Pair> pairs, const Move& move,
                               const Deadline& until) {
  const auto& [nbytes, kind, notification, for_kernel, visible] = move;
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  const RailIndex rail = group_->message_rail();
  auto transfer =
      std::make_shared<Transfer>(poller_, nbytes, routes_.over(kind, RailMask{1} << rail));
  StagedWork work(transfer, is_write ? StagedWork::Direction::out : StagedWork::Direction::in);
  if (visible) work.set_visible();
  for (const Pair& pair : pairs) {
    work.add(make_staged_piece(pair, is_write ? kRemoteWrite : kRemoteRead, *transfer));
  }
  message_path().stats().count(opcode, nbytes);
  count(*transfer, opcode, /*data=*/true, notification.has_value());
  if (notification) {
    post_later(transfer, {.message = notify_message(*notification), .payload = {}},
               std::move(work));
  } else {
    staging_->put(std::move(work));
  }
  staging_->wait_for_room(until);
  return transfer;
}

// Atomics have no message that could follow: who calls waits.
void Peer::wait_for_staged(const Deadline& until) const {
  const auto settled = [this, upto = staging_->put_so_far()] {
    return staging_->settled() >= upto;
  };
  if (settled() || poller_->wait(settled, until)) return;
  throw TransferTimeout("earlier staged transfers with peer '" + identity_.name +
                        "' did not end in time, so the atomic was not carried out: give a longer "
                        "timeout");
}

// The notification of data that devices move, behind what is staged. `data` was given none.
Peer::Transferring Peer::notify_behind(Transferring data, const Notification& notification) {
  auto transfer = std::make_shared<Transfer>(poller_, data->nbytes(), data->shared_route());
  RouteStats::add(transfer->route().stats->notifications, 1);
  StagedWork work(transfer, StagedWork::Direction::out);
  work.follow(std::move(data));
  post_later(transfer, {.message = notify_message(notification), .payload = {}}, std::move(work));
  return transfer;
}

// A message that follows all that is staged now, and the copies of `work`.
void Peer::post_later(const Transferring& transfer, Outgoing&& outgoing, StagedWork&& work) {
  auto kept = std::make_shared<Outgoing>(std::move(outgoing));
  work.then([group = group_, transfer, kept] {
    const std::lock_guard lock(group->mutex);
    VerbsPath* const path = group->path(group->message_rail());
    if (path == nullptr) throw VerbsError("no rail with peer '" + group->peer_name + "' is left");
    const bool offers = kept->message.kind == MessageKind::offer;
    put_seal(*kept);
    if (offers) {
      return path->put_offer(transfer, kept->message, kept->rkeys, std::move(kept->payload));
    }
    Job job(transfer, IBV_WR_RDMA_WRITE);
    job.then(kept->message, std::move(kept->payload));
    path->put_message(std::move(job));
  });
  staging_->put(std::move(work));
}

}  // namespace zerohop::engine
