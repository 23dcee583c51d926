#include "engine/path/staged/staged_path.hpp"

#include <mutex>
#include <utility>

#include "base/error.hpp"

namespace zerohop::engine {

StagedPath::StagedPath(Staging::Services services, std::shared_ptr<const PeerState> state,
                       std::shared_ptr<PeerRails> rails)
    : state_(std::move(state)),
      rails_(std::move(rails)),
      poller_(services.poller),
      staging_(std::make_shared<Staging>(std::move(services), rails_->group())) {
  rails_->group()->staged = staging_;
}

// Local memory of any kind is copied through a ring, so only the peer's GPU matters here.
StagedPiece StagedPath::make_piece(const Pair& pair, RemoteAccess needed,
                                   Transfer& transfer) const {
  state_->check(pair, needed);
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

Transferring StagedPath::post(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                              const DevicePath::Move& move, Routes::RoutePtr route,
                              const Deadline& until) {
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  auto transfer = std::make_shared<Transfer>(poller_, move.nbytes, std::move(route));
  StagedWork work(transfer, is_write ? StagedWork::Direction::out : StagedWork::Direction::in);
  if (move.visible) work.set_visible();
  for (const Pair& pair : pairs) work.add(make_piece(pair, needed_by(opcode), *transfer));
  rails_->message_path().stats().count(opcode, move.nbytes);
  count_begin(*transfer, opcode, /*data=*/true, move.notification.has_value(), state_->name());
  if (move.notification) {
    post_later(transfer, {.message = notify_message(*move.notification)}, std::move(work));
  } else {
    staging_->put(std::move(work));
  }
  staging_->wait_for_room(until);
  return transfer;
}

void StagedPath::wait(const Deadline& until) const {
  const auto settled = [this, upto = staging_->put_so_far()] {
    return staging_->settled() >= upto;
  };
  if (settled() || poller_->wait(settled, until)) return;
  throw TransferTimeout("earlier staged transfers with peer '" + state_->name() +
                        "' did not end in time, so the atomic was not executed: give a longer "
                        "timeout");
}

Transferring StagedPath::notify_behind(Transferring data, const Notification& notification) {
  auto transfer = std::make_shared<Transfer>(poller_, data->nbytes(), data->shared_route());
  RouteStats::add(transfer->route().stats->notifications, 1);
  StagedWork work(transfer, StagedWork::Direction::out);
  work.follow(std::move(data));
  post_later(transfer, {.message = notify_message(notification)}, std::move(work));
  return transfer;
}

void StagedPath::post_later(const Transferring& transfer, Outgoing&& outgoing, StagedWork&& work) {
  auto kept = std::make_shared<Outgoing>(std::move(outgoing));
  work.then([group = rails_->group(), transfer, kept] {
    const std::lock_guard lock(group->mutex);
    VerbsPath* const path = group->path(group->message_rail());
    if (path == nullptr) throw VerbsError("no rail with peer '" + group->peer_name + "' is left");
    kept->put_seal();
    if (kept->offers()) {
      return path->put_offer(transfer, kept->message, kept->rkeys, std::move(kept->payload));
    }
    Job job(transfer, IBV_WR_RDMA_WRITE);
    job.then(kept->message, std::move(kept->payload));
    path->put_message(std::move(job));
  });
  staging_->put(std::move(work));
}

}  // namespace zerohop::engine
