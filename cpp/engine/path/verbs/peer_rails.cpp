#include "engine/path/verbs/peer_rails.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.hpp"

namespace zerohop::engine {
namespace {

constexpr Deadline::Seconds kMoment{1e-3};

}  // namespace

void PeerRails::open(RailServices services, const std::function<void(RailIndex)>& on_broken) {
  poller_ = services.poller;
  for (const auto& rail : devices_) {
    services.rail = rail;
    const auto repair = [on_broken, index = rail->index()] { on_broken(index); };
    try {
      rails_.push_back(rail->gone() ? nullptr : PeerRail::create(services, group_, repair));
    } catch (...) {
      close([](Effect effect) { return Failure{.message = "it was not made", .effect = effect}; });
      throw;
    }
  }
}

void PeerRails::close(const PeerRail::Reason& reason) {
  for (const auto& peer_rail : rails_) {
    if (peer_rail) peer_rail->close(reason);
  }
}

void PeerRails::set_count(std::size_t count, bool global_atomics) {
  group_->set_rails(count);
  global_atomics_ = global_atomics;
}

RailMask PeerRails::open_rails() const {
  const std::lock_guard lock(group_->mutex);
  return group_->open_rails();
}

RailGroup::Since PeerRails::unsettled(RailIndex rail) const {
  const std::lock_guard lock(group_->mutex);
  return group_->unsettled(rail);
}

RailGroup::Since PeerRails::dark() const {
  const std::lock_guard lock(group_->mutex);
  return group_->dark();
}

// The first that exists; a closed rail throws the reason itself.
PeerRail& PeerRails::any_rail() const {
  for (const auto& peer_rail : rails_) {
    if (peer_rail) return *peer_rail;
  }
  throw VerbsError("no device of this Endpoint is left: make a new Endpoint");
}

PeerRail& PeerRails::message_rail() const {
  const auto& peer_rail = rails_[group_->message_rail()];
  return peer_rail ? *peer_rail : any_rail();
}

PeerRail& PeerRails::atomics_rail() const {
  if (count() == 1) return *rails_.front();
  const auto& first = rails_.front();
  if (first && !first->fruitless() && !first->gone()) return *first;
  if (global_atomics_) return *rails_[group_->message_rail()];
  throw RouteUnavailable("atomics with peer '" + state_->name() + "' go over " +
                         devices_.front()->name() +
                         " only, which does not work now: those of another adapter are not atomic "
                         "with them; wait until "
                         "it works again (peer.stats()['rails'])");
}

RailMask PeerRails::reach(std::span<const Pair> pairs) const {
  RailMask mask = (RailMask{1} << count()) - 1;
  // If all are closed, the attempt reports the reason.
  if (const RailMask open = open_rails()) mask &= open;
  for (const auto& [local, remote] : pairs) {
    if (local->layout().count() == 0) continue;
    const auto registration = local->registration();
    for (RailIndex rail = 0; rail < kMaxRails; ++rail) {
      if (registration->lkey(rail) == 0 || remote->rkeys[rail] == 0) mask &= ~(RailMask{1} << rail);
    }
  }
  return mask;
}

bool PeerRails::idle() const {
  return std::ranges::all_of(rails_,
                             [](const auto& peer_rail) { return !peer_rail || peer_rail->idle(); });
}

PeerRails::Work PeerRails::work() const {
  Work work{.pending = pending_->staged > 0};
  if (group_->calm()) return work;
  const std::lock_guard lock(group_->mutex);
  work.pending = work.pending || !group_->settled();
  for (const auto& peer_rail : rails_) {
    if (!peer_rail) continue;
    // One of several rails may be in repair for long; the group tracks that case.
    const bool may_arrive = count() == 1 && peer_rail->in_repair();
    work.pending = work.pending || may_arrive || peer_rail->jobs_pending() > 0;
    work.unseen = work.unseen || peer_rail->may_be_unseen();
  }
  if (!work.pending && !work.unseen) group_->note_calm();
  return work;
}

bool PeerRails::wait_for_work(const TransferOptions& options) const {
  const auto idle = [this] { return !work().pending; };
  if (idle()) return true;
  return poller_->wait(
      idle, options.require.empty() ? Deadline::after(kMoment) : state_->deadline(options.timeout));
}

std::vector<PeerRails::Report> PeerRails::reports() const {
  std::vector<Report> reports;
  for (const auto& rail : devices_) {
    const auto& peer_rail = rails_[rail->index()];
    reports.push_back({.device = rail->name(),
                       .trouble = peer_rail ? peer_rail->trouble() : "its device was gone",
                       .stats = peer_rail ? &peer_rail->stats() : nullptr,
                       .registered_nbytes = peer_rail ? peer_rail->registered_nbytes() : 0});
  }
  return reports;
}

std::vector<Settings> PeerRails::settings() const {
  std::vector<Settings> all;
  for (const auto& rail : devices_) {
    const auto& peer_rail = rails_[rail->index()];
    all.push_back(peer_rail ? peer_rail->settings() : Settings{});
    if (all.back().empty())
      all.back().emplace_back("device", rail->name());  // it has no queue pair
  }
  return all;
}

}  // namespace zerohop::engine
