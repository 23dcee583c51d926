// Queue pairs that sleep: they, and the memory registered for them, were given back because nobody
// used them for a while. The connection stays, and with it posted recvs and messages that wait for
// one; the next job of either end has fresh queue pairs made and connected, as after an error.
//
// Both ends agree: the one that wishes it keeps its jobs in line and tells how many messages it has
// sent and taken. When the other has nothing under way and its numbers are the same, nothing is on
// its way between them: what either end posted was acknowledged, and its messages were taken.
#include <algorithm>
#include <utility>

#include "engine/path/verbs/peer_rails.hpp"

namespace zerohop::engine {

std::uint64_t PeerRails::activity() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& path : paths_) {
    if (path) sum += path->stats().work_requests.load() + path->stats().messages_in.load();
  }
  return sum;
}

bool PeerRails::asleep() const {
  return std::ranges::any_of(paths_, [](const auto& path) { return path && path->asleep(); });
}

// With the lock of the group held, as the next.
bool PeerRails::all_at_rest() const {
  if (!group_->settled() || group_->open_rails() == 0) return false;
  return std::ranges::all_of(
      paths_, [](const auto& path) { return !path || path->closed() || path->at_rest(); });
}

std::optional<std::vector<Tally>> PeerRails::drowse() {
  const std::lock_guard lock(group_->mutex);
  if (!all_at_rest()) return std::nullopt;
  std::vector<Tally> tallies(count());
  for (std::size_t rail = 0; rail < tallies.size(); ++rail) {
    const auto& path = paths_[rail];
    if (!path || path->closed()) continue;
    path->drowse();
    tallies[rail] = path->tally();
  }
  return tallies;
}

void PeerRails::rouse() {
  const std::lock_guard lock(group_->mutex);
  for (const auto& path : paths_) {
    if (path && path->drowsy()) path->rouse();
  }
}

void PeerRails::fall_asleep() {
  poller_->flush();  // nothing of the queue pairs is left behind them
  std::vector<std::unique_ptr<rdma::QueuePair>> gone(paths_.size());
  {
    const std::lock_guard lock(group_->mutex);
    for (std::size_t rail = 0; rail < paths_.size(); ++rail) {
      if (paths_[rail] && paths_[rail]->drowsy()) gone[rail] = paths_[rail]->fall_asleep();
    }
  }
  for (std::size_t rail = 0; rail < paths_.size(); ++rail) {
    if (gone[rail]) paths_[rail]->let_go(std::move(gone[rail]));
  }
}

bool PeerRails::fall_asleep_with(const std::vector<Tally>& theirs) {
  poller_->flush();  // what has arrived is counted
  {
    const std::lock_guard lock(group_->mutex);
    if (!all_at_rest() || theirs.size() != count()) return false;
    for (std::size_t rail = 0; rail < theirs.size(); ++rail) {
      const auto& path = paths_[rail];
      const Tally ours = path && !path->closed() ? path->tally() : Tally{};
      if (ours.sent != theirs[rail].taken || ours.taken != theirs[rail].sent) return false;
    }
    for (const auto& path : paths_) {
      if (path && !path->closed()) path->drowse();
    }
  }
  fall_asleep();
  return true;
}

}  // namespace zerohop::engine
