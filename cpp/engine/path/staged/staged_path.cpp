#include "engine/path/staged/staged_path.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.hpp"

namespace zerohop::engine {

StagedPath::StagedPath(Staging::Services services, std::shared_ptr<const PeerState> state,
                       std::shared_ptr<PeerRails> rails, std::shared_ptr<DevicePath> devices)
    : state_(std::move(state)),
      rails_(std::move(rails)),
      devices_(std::move(devices)),
      pending_(services.pending),
      poller_(services.poller),
      staging_(std::make_shared<Staging>(std::move(services), rails_->group())) {
  rails_->group()->staged = staging_;
}

// Local memory of any kind is copied through a ring, so only the peer's GPU matters here.
StagedPiece StagedPath::make_piece(const Pair& pair, RemoteAccess needed,
                                   Transfer& transfer) const {
  state_->check(pair, needed);
  const auto& [local, remote] = pair;
  auto registration = local->registration();
  StagedPiece piece{.near = local->layout(),
                    .far = remote->layout,
                    .gpu = registration->device,
                    .by = remote->staged() ? StagedPiece::By::owner : StagedPiece::By::device,
                    .rkeys = remote->rkeys,
                    .key = remote->staged_key};
  transfer.keep(std::move(registration));
  return piece;
}

bool StagedPath::takes(const Call& call) const {
  if (call.options.notify && pending()) return true;
  return call.on_gpus && std::ranges::any_of(call.pairs, [](const Pair& pair) {
           return pair.remote->staged() || pair.local->staged();
         });
}

TransferPtr StagedPath::begin(const Call& call, std::string& why_not) {
  if (call.options.briefly) return nullptr;
  if (call.pages != nullptr) {
    return begin({call.opcode, PagePairs(*call.pages).pairs, call.options}, why_not);
  }
  DevicePath::Move move = devices_->plan(call);
  const Deadline until = devices_->wait_for_turn(call.options);
  if (move.kind == Routes::Kind::staged) {
    if (!move.for_kernel) wait_for_program(call.pairs, until);
    return post(call, move, until);
  }
  move.notification.reset();
  const Deadline room = DevicePath::room_until(call.options, until);
  return notify_behind(devices_->post(call.opcode, call.pairs, move, room), *call.options.notify);
}

TransferPtr StagedPath::post(const Call& call, const DevicePath::Move& move,
                             const Deadline& until) {
  const RailMask rail = RailMask{1} << rails_->group()->message_rail();
  auto transfer =
      std::make_shared<Transfer>(poller_, move.nbytes, devices_->route(move.kind, rail));
  StagedWork work(transfer,
                  call.is_write() ? StagedWork::Direction::out : StagedWork::Direction::in);
  if (move.visible) work.set_visible();
  for (const Pair& pair : call.pairs) work.add(make_piece(pair, call.needed(), *transfer));
  rails_->message_rail().stats().count(call.opcode, move.nbytes);
  count_operation(*transfer, call.opcode, /*data=*/true, move.notification.has_value(),
                  state_->name());
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

TransferPtr StagedPath::notify_behind(TransferPtr data, const Notification& notification) {
  auto transfer = std::make_shared<Transfer>(poller_, data->nbytes(), data->shared_route());
  RouteStats::add(transfer->route().stats->notifications, 1);
  StagedWork work(transfer, StagedWork::Direction::out);
  work.follow(std::move(data));
  post_later(transfer, {.message = notify_message(notification)}, std::move(work));
  return transfer;
}

void StagedPath::post_later(const TransferPtr& transfer, Outgoing&& outgoing, StagedWork&& work) {
  auto kept = std::make_shared<Outgoing>(std::move(outgoing));
  work.then([group = rails_->group(), transfer, kept] {
    const std::lock_guard lock(group->mutex);
    PeerRail* const peer_rail = group->at(group->message_rail());
    if (peer_rail == nullptr)
      throw VerbsError("no rail with peer '" + group->peer_name + "' is left");
    kept->put_seal();
    if (kept->offers()) {
      return peer_rail->put_offer(transfer, kept->message, kept->rkeys, std::move(kept->payload));
    }
    Job job(transfer, IBV_WR_RDMA_WRITE);
    job.then(kept->message, std::move(kept->payload));
    peer_rail->put_message(std::move(job));
  });
  staging_->put(std::move(work));
}

}  // namespace zerohop::engine
