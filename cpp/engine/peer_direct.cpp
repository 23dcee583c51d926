// Queue pairs between the two processes that kernels of one of them drive by themselves.
#include <utility>

#include "base/error.hpp"
#include "engine/peer.hpp"

namespace zerohop::engine {

std::shared_ptr<const DirectTarget> Peer::make_direct_target(
    RailIndex rail, const rdma::QueuePairAddress& source) const {
  if (rail >= paths_.size() || !paths_[rail]) throw RouteUnavailable("it has no such rail");
  return paths_[rail]->make_direct_target(source);
}

void Peer::on_direct_opened(const DirectOpened& opened) {
  std::shared_ptr<DirectAnswer> answer;
  {
    const std::lock_guard lock(mutex_);
    const auto found = direct_answers_.find(opened.request);
    if (found == direct_answers_.end() || found->second->arrived.load()) return;
    answer = found->second;
  }
  answer->opened = opened;
  answer->arrived.store(true);
  poller_->wake();
}

// Asks the peer for it, and waits.
DirectOpened Peer::open_target(std::uint64_t request, RailIndex rail,
                               const rdma::QueuePairAddress& source, const Deadline& deadline) {
  auto answer = std::make_shared<DirectAnswer>();
  {
    const std::lock_guard lock(mutex_);
    direct_answers_.emplace(request, answer);
  }
  host_.tell(shared_from_this(),
             OpenDirect{.request = request, .rail = rail, .queue_pair = source});
  poller_->wait([&] { return answer->arrived.load() || !alive(); }, deadline);
  {
    const std::lock_guard lock(mutex_);
    direct_answers_.erase(request);
  }
  if (answer->arrived.load()) return answer->opened;
  if (!alive()) throw_lost(Effect::nothing);
  throw TransferTimeout("peer '" + identity_.name +
                        "' did not open a queue pair for kernels in time: give a longer timeout");
}

DirectReach Peer::reach_directly(const Memory& local, const RemoteMemory& remote,
                                 const Deadline& deadline) {
  DirectReach reach;
  reach.entries = reach_for_entries(local, remote);
  const VerbsPath& path = message_path();
  const RailIndex rail = path.rail();
  reach.local_key = reach.entries.local->lkey(rail);
  reach.remote_key = remote.rkeys[rail];
  if (reach.local_key == 0 || reach.remote_key == 0) {
    throw RouteUnavailable("device " + path.served_by().name() + " does not reach " +
                           (reach.local_key == 0 ? "the local array" : "that array of the peer") +
                           ", so kernels cannot have it moved by that");
  }
  // Its slots are the host's: between two places of a PCIe bus nothing keeps order by itself.
  if (!path.served_by().software() && !remote.on_host()) {
    throw RouteUnavailable("a notification could overtake data in " + remote.device +
                           " of the peer, as device " + path.served_by().name() +
                           " writes them to two places: use the proxy, or memory of the host");
  }
  auto queue_pair = path.make_direct_queue_pair();
  std::uint64_t request = 0;
  {
    const std::lock_guard lock(mutex_);
    request = next_request_++;
  }
  reach.target = std::shared_ptr<void>(nullptr, [peer = weak_from_this(), request](void*) {
    const auto alive = peer.lock();
    if (alive) alive->host_.tell(alive, CloseDirect{.request = request});
  });
  const DirectOpened opened = open_target(request, rail, queue_pair->address(), deadline);
  if (!opened.refusal.empty()) {
    throw RouteUnavailable("peer '" + identity_.name +
                           "' does not open a queue pair for kernels: " + opened.refusal);
  }
  queue_pair->connect(opened.queue_pair);
  reach.slots = opened.slots;
  reach.slots_key = opened.slots_key;
  reach.queue_pair = std::move(queue_pair);
  return reach;
}

}  // namespace zerohop::engine
