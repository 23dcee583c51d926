// How a Peer uses several rails: which of them a transfer takes, the shares of large ones, and the
// order between rails.
#include <bit>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "engine/peer/peer.hpp"

namespace zerohop::engine {

// One that exists; what it was is told by the paths themselves.
VerbsPath& Peer::any_path() const {
  for (const auto& path : paths_) {
    if (path) return *path;
  }
  throw VerbsError("no device of this Endpoint is left: make a new Endpoint");
}

void Peer::set_rail_count(std::size_t count, bool global_atomics) {
  group_->set_rails(count);
  global_atomics_ = global_atomics;
}

RailMask Peer::open_rails() const {
  const std::lock_guard lock(group_->mutex);
  return group_->open_rails();
}

PathGroup::Since Peer::unsettled(RailIndex rail) const {
  const std::lock_guard lock(group_->mutex);
  return group_->unsettled(rail);
}

PathGroup::Since Peer::dark() const {
  const std::lock_guard lock(group_->mutex);
  return group_->dark();
}

// Open rails over which both sides of every pair can be reached.
RailMask Peer::reach(std::span<const Pair> pairs) const {
  RailMask mask = (RailMask{1} << group_->rails()) - 1;
  // With all of them closed the reason comes with the attempt.
  if (const RailMask open = open_rails()) mask &= open;
  for (const auto& [local, remote] : pairs) {
    if (local->layout().count() == 0) continue;
    const auto pinned = local->pinned();
    for (RailIndex rail = 0; rail < kMaxRails; ++rail) {
      if (pinned->lkey(rail) == 0 || remote->rkeys[rail] == 0) mask &= ~(RailMask{1} << rail);
    }
  }
  return mask;
}

Striping Peer::plan(std::span<const Pair> pairs, std::uint64_t nbytes) const {
  const RailMask reached = reach(pairs);
  if (reached == 0) {
    throw RouteUnavailable("no rail reaches both arrays of this transfer with peer '" +
                           identity_.name + "': register them again on both sides");
  }
  const RailIndex nearest =
      pairs.empty() ? group_->message_rail() : pairs.front().first->nearest_rail();
  const RailMask usable = reached & group_->serving();
  // Where none serves, the transfer waits on one for its repair, or fails with it.
  if (usable == 0) return {nbytes, reached & (~reached + 1), UINT64_MAX, nearest};
  return {nbytes, usable, host_.stripe_bytes, nearest};
}

Job Peer::make_share(ibv_wr_opcode opcode, std::span<const Pair> pairs, const Stripe& stripe,
                     const Transferring& transfer) const {
  std::uint64_t at = 0;  // bytes before pair `first`
  std::size_t first = 0;
  const auto nbytes_of = [&](std::size_t i) { return pairs[i].first->layout().nbytes(); };
  while (first < pairs.size() && at + nbytes_of(first) <= stripe.begin) at += nbytes_of(first++);
  std::uint64_t end = at;
  std::size_t last = first;
  while (last < pairs.size() && end < stripe.begin + stripe.nbytes) end += nbytes_of(last++);
  Job job = make_job(opcode, pairs.subspan(first, last - first), stripe.rail, transfer);
  job.restrict(stripe.begin - at, stripe.nbytes);
  return job;
}

Peer::Transferring Peer::transfer_over_rails(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                             const Move& move, const Deadline& until) {
  const auto& [nbytes, kind, notification, for_kernel, visible] = move;
  std::optional<Message> message;
  if (notification) message = notify_message(*notification);
  for (;;) {
    const Striping striping = plan(pairs, nbytes);
    auto transfer =
        std::make_shared<Transfer>(poller_, nbytes, routes_.over(kind, striping.rails()));
    Shares shares;
    shares.reserve(striping.stripes().size());
    if (!pairs.empty()) {
      // Of one rail all pairs, so that those without bytes are checked as well.
      const bool whole = striping.stripes().size() == 1;
      for (const Stripe& stripe : striping.stripes()) {
        shares.push_back({stripe.rail, whole ? make_job(opcode, pairs, stripe.rail, transfer)
                                             : make_share(opcode, pairs, stripe, transfer)});
      }
    }
    for (Share& share : shares) {
      if (visible && opcode == IBV_WR_RDMA_WRITE) share.job.read_back();
    }
    if (!submit_shares(shares, striping.rails(), message, opcode, transfer)) continue;
    for (const Stripe& stripe : striping.stripes()) {
      const auto& path = paths_[stripe.rail];
      path->stats().count(opcode, stripe.nbytes);
      path->wait_for_room(until);
    }
    return transfer;
  }
}

// False when a rail failed since the transfer was planned: nothing was submitted.
bool Peer::submit_shares(Shares& shares, RailMask planned, const std::optional<Message>& message,
                         ibv_wr_opcode opcode, const Transferring& transfer) {
  const std::lock_guard lock(group_->mutex);
  const RailMask serving = group_->serving();
  if (serving != 0 && (planned & ~serving) != 0) return false;
  count(*transfer, opcode, !shares.empty(), message.has_value());
  const RailIndex behind = group_->message_rail();
  const bool fused = message && shares.size() == 1 && shares.front().rail == behind;
  const bool apart = message && !fused;
  if (fused) {
    shares.front().job.then(*message);
    shares.front().job.await(group_->make_fence(behind));
  }
  const std::size_t jobs = shares.size() + (apart ? 1 : 0);
  if (jobs > 1) transfer->set_striped();
  for (std::size_t i = 1; i < jobs; ++i) transfer->hold();
  for (Share& share : shares) {
    if (opcode == IBV_WR_RDMA_WRITE && share.rail != behind) share.job.read_back();
    paths_[share.rail]->enqueue(std::move(share.job));
  }
  if (apart) {
    Job last(transfer, opcode);
    last.then(*message);
    last.await(group_->make_fence(behind));
    paths_[behind]->enqueue(std::move(last));
  }
  if (jobs == 0) transfer->drop();
  return true;
}

VerbsPath& Peer::message_path() const {
  const auto& path = paths_[group_->message_rail()];
  return path ? *path : any_path();
}

// Atomics of different adapters are not atomic with each other, so all take one rail.
VerbsPath& Peer::atomics_path() const {
  if (group_->rails() == 1) return *paths_.front();
  const auto& first = paths_.front();
  if (first && !first->fruitless() && !first->gone()) return *first;
  if (global_atomics_) return *paths_[group_->message_rail()];
  throw RouteUnavailable(
      "atomics with peer '" + identity_.name + "' go over " + host_.rails.front()->name() +
      " only, which does not serve: those of another adapter are not atomic with them; wait until "
      "it does again (peer.stats()['rails'])");
}

Route Peer::route(const Memory& local, const RemoteMemory& remote) const {
  check_alive();
  static_cast<void>(local.pinned());  // throws once it is closed
  const Pair pair{&local, &remote};
  const Neighbour::Reached reached =
      reach_as_neighbour(pair, {.seconds = host_.default_timeout, .insists = false});
  const Routes::Kind kind = route_kind(local, remote);
  const bool several = group_->rails() > 1 && kind != Routes::Kind::staged;
  const RailMask taken = several ? plan({&pair, 1}, local.layout().nbytes()).rails()
                                 : RailMask{1} << group_->message_rail();
  Route route = !reached.window  ? device_route(pair, *routes_.over(kind, taken), reached.reason)
                : reached.by_gpu ? *reached.by_gpu
                                 : *neighbour_->route(reached.window.get());
  const auto& path = paths_[static_cast<std::size_t>(std::countr_zero(taken))];
  if (path) route.settings = path->settings();
  if (route.settings.empty()) return route;  // closed
  route.settings.insert(route.settings.end(), host_.settings.begin(), host_.settings.end());
  route.settings.emplace_back("integrity", std::int64_t{check_line_ ? 1 : 0});
  if (host_.rails.size() > 1) route.rails = rail_settings();
  return route;
}

std::vector<Settings> Peer::rail_settings() const {
  std::vector<Settings> all;
  for (const auto& rail : host_.rails) {
    const auto& path = paths_[rail->index()];
    all.push_back(path ? path->settings() : Settings{});
    if (all.back().empty())
      all.back().emplace_back("device", rail->name());  // it has no queue pair
  }
  return all;
}

Route Peer::device_route(const Pair& pair, Route route, const std::string& not_p2p) const {
  const auto& [local, remote] = std::tie(*pair.first, *pair.second);
  if (!local.on_host()) route.reason += "; " + local.registration()->reason;
  if (remote.staged()) route.reason += "; the peer's devices do not reach its " + remote.device;
  route.reason += "; not by p2p, because " + not_p2p;
  if (host_.rails.size() == 1) return route;
  if (!local.place().empty()) {
    route.reason += "; the nearest to " + local.place() + ", where the local array lies, is " +
                    host_.rails[local.nearest_rail()]->name();
  }
  for (const RailReport& rail : rails()) {
    if (!rail.trouble.empty())
      route.reason += "; " + rail.device + " does not serve: " + rail.trouble;
  }
  return route;
}

std::vector<Peer::RailReport> Peer::rails() const {
  std::vector<RailReport> reports;
  for (const auto& rail : host_.rails) {
    const auto& path = paths_[rail->index()];
    reports.push_back({.device = rail->name(),
                       .trouble = path ? path->trouble() : "its device was gone",
                       .stats = path ? &path->stats() : nullptr,
                       .registered_nbytes = path ? path->registered_nbytes() : 0,
                       .asleep = path && path->asleep()});
  }
  return reports;
}

}  // namespace zerohop::engine
