// Queue pairs between the two processes that kernels of one of them drive by themselves.
#include <utility>

#include "base/error.hpp"
#include "engine/peer/peer.hpp"

namespace zerohop::engine {

std::shared_ptr<const DirectTarget> Peer::make_direct_target(
    RailIndex rail, const rdma::QueuePairAddress& source) const {
  if (rail >= paths_.size() || !paths_[rail]) throw RouteUnavailable("it has no such rail");
  return paths_[rail]->make_direct_target(source);
}

void Peer::on_direct_opened(const DirectOpened& opened) {
  const std::shared_ptr<DirectAnswer> answer = direct_questions_.find(opened.request);
  if (!answer || answer->arrived.load()) return;
  answer->opened = opened;
  answer->arrived.store(true);
  poller_->wake();
}

// Asks the peer for it, and waits.
DirectOpened Peer::open_target(const Questions<DirectAnswer>::Asked& asked, RailIndex rail,
                               const rdma::QueuePairAddress& source, const Deadline& deadline) {
  const DirectAnswer& answer = asked.answer();
  host_.tell(shared_from_this(),
             OpenDirect{.request = asked.number(), .rail = rail, .queue_pair = source});
  poller_->wait([&] { return answer.arrived.load() || !alive(); }, deadline);
  if (answer.arrived.load()) return answer.opened;
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
  const Questions<DirectAnswer>::Asked asked(direct_questions_);
  const std::uint64_t request = asked.number();
  reach.target = std::shared_ptr<void>(nullptr, [peer = weak_from_this(), request](void*) {
    const auto alive = peer.lock();
    if (alive) alive->host_.tell(alive, CloseDirect{.request = request});
  });
  const DirectOpened opened = open_target(asked, rail, queue_pair->address(), deadline);
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
