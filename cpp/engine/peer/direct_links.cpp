#include "engine/peer/direct_links.hpp"

#include <utility>

#include "base/error.hpp"

namespace zerohop::engine {

std::shared_ptr<const DirectTarget> DirectLinks::make_target(
    RailIndex rail, const rdma::QueuePairAddress& source) const {
  const bool there = rail < rails_->devices().size() && rails_->at(rail);
  if (!there) throw RouteUnavailable("it has no such rail");
  return rails_->at(rail)->make_direct_target(source);
}

void DirectLinks::on_opened(const DirectOpened& opened) {
  const std::shared_ptr<Answer> answer = questions_.find(opened.request);
  if (!answer || answer->arrived.load()) return;
  answer->opened = opened;
  answer->arrived.store(true);
  poller_->wake();
}

// Sends the request to the peer and waits for its answer.
DirectOpened DirectLinks::ask(const Questions<Answer>::Asked& asked, RailIndex rail,
                              const rdma::QueuePairAddress& source, const Deadline& deadline) {
  const Answer& answer = asked.answer();
  tell_(OpenDirect{.request = asked.number(), .rail = rail, .queue_pair = source});
  poller_->wait([&] { return answer.arrived.load() || !state_->alive(); }, deadline);
  if (answer.arrived.load()) return answer.opened;
  if (!state_->alive()) state_->throw_lost(Effect::nothing);
  throw TransferTimeout("peer '" + state_->name() +
                        "' did not open a queue pair for kernels in time: give a longer timeout");
}

DirectReach DirectLinks::open(EntryReach entries, const RemoteMemory& remote,
                              const RingPlaces& places, const Deadline& deadline) {
  DirectReach reach;
  reach.entries = std::move(entries);
  const PeerRail& peer_rail = rails_->message_rail();
  const RailIndex rail = peer_rail.rail();
  reach.local_key = reach.entries.local->lkey(rail);
  reach.remote_key = remote.rkeys[rail];
  if (reach.local_key == 0 || reach.remote_key == 0) {
    throw RouteUnavailable("device " + peer_rail.served_by().name() + " does not reach " +
                           (reach.local_key == 0 ? "the local array" : "that array of the peer") +
                           ", so kernels cannot use it for that array");
  }
  // Its slots are in host memory. PCIe does not order writes to two different places. All memory
  // that is shared may be read.
  reach.flushes = !remote.on_host() && remote.layout.nbytes() > 0;
  auto queue_pair = peer_rail.make_direct_queue_pair(places, reach.entries.local->device, deadline);
  const Questions<Answer>::Asked asked(questions_);
  const std::uint64_t request = asked.number();
  reach.target = std::shared_ptr<void>(
      nullptr, [tell = tell_, request](void*) { tell(CloseDirect{.request = request}); });
  const DirectOpened opened = ask(asked, rail, queue_pair->address(), deadline);
  if (!opened.refusal.empty()) {
    throw RouteUnavailable("peer '" + state_->name() +
                           "' refused to open a queue pair for kernels: " + opened.refusal);
  }
  queue_pair->connect(opened.queue_pair);
  reach.slots = opened.slots;
  reach.slots_key = opened.slots_key;
  reach.queue_pair = std::move(queue_pair);
  return reach;
}

}  // namespace zerohop::engine
