#include "engine/peer/peer.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/report.hpp"

namespace zerohop::engine {

Peer::Peer(Host host, std::shared_ptr<Poller> poller, Identity identity)
    : host_(std::move(host)),
      poller_(std::move(poller)),
      book_(host_.books->open()),
      routes_(host_.rails, book_),
      process_generation_(fork_generation()),
      identity_(std::move(identity)),
      group_(std::make_shared<PathGroup>(identity_.name)),
      staging_(std::make_shared<Staging>(Staging::Services{.poller = poller_,
                                                           .registrations = host_.registrations,
                                                           .memories = host_.staged_memories,
                                                           .stager = host_.stager,
                                                           .chunk = host_.staging_chunk},
                                         group_)) {
  group_->staged = staging_;
}

std::shared_ptr<Peer> Peer::create(Host host, PathServices services, Identity identity) {
  std::shared_ptr<Peer> peer(new Peer(std::move(host), services.poller, std::move(identity)));
  if (peer->host_.neighbourhood) peer->invitation_.emplace(peer->host_.neighbourhood);
  std::weak_ptr<Peer> weak = peer;
  for (const auto& rail : peer->host_.rails) {
    services.rail = rail;
    const auto on_broken = [weak, index = rail->index()] {
      if (auto alive = weak.lock()) alive->host_.repair(alive, index);
    };
    peer->paths_.push_back(rail->gone() ? nullptr
                                        : VerbsPath::create(services, peer->group_, on_broken));
  }
  return peer;
}

void Peer::become_alive() {
  host_.books->connected(book_, identity_.name);
  state_.store(State::alive, std::memory_order_release);
}

bool Peer::lose(const std::string& reason) {
  if (state_.load() == State::lost) return false;
  // From here on its process begins nothing any more in the memory of this one.
  const auto visitor = invitation_ ? invitation_->withdraw() : nullptr;
  {
    const std::lock_guard lock(mutex_);
    dismissed_ = visitor;
    why_lost_ = reason;
    lost_reason_ = "peer '" + identity_.name + "' is lost: " + reason;
    state_.store(State::lost, std::memory_order_release);
  }
  host_.books->ended(book_, reason);
  if (neighbour_) neighbour_->leave();
  cut_off_gpu_copies();
  const auto failure = [text = lost_reason_](Effect effect) {
    return Failure{.kind = Failure::Kind::peer_lost, .message = text}.with_effect(effect);
  };
  for (const auto& path : paths_) {
    if (path) path->close(failure);
  }
  if (check_line_) check_line_->end();
  invitation_.reset();
  for (const auto& answer : lookups_.all()) answer->end();
  left_.store(true, std::memory_order_release);
  poller_->wake();
  return true;
}

void Peer::check_process() const {
  if (process_generation_ == fork_generation()) return;
  throw Error(
      "this Peer belongs to the process that connected it: after fork(), make a new Endpoint in "
      "the child");
}

void Peer::throw_lost(Effect effect) const {
  const std::lock_guard lock(mutex_);
  throw PeerLost(lost_reason_ + "; connect again", 0, effect);
}

std::string Peer::why_lost() const {
  const std::lock_guard lock(mutex_);
  return why_lost_;
}

void Peer::check_alive() const {
  check_process();
  if (state_.load(std::memory_order_acquire) == State::lost) throw_lost(Effect::nothing);
}

Deadline Peer::deadline(const std::optional<double>& timeout) const {
  return Deadline::after(Deadline::Seconds(timeout.value_or(host_.default_timeout)));
}

bool Peer::idle() const {
  if (check_line_ && check_line_->pending()) return false;
  if (copies_queued_.load() > 0 || gpu_copies_->pending() || staging_->pending()) return false;
  return std::ranges::all_of(paths_, [](const auto& path) { return !path || path->idle(); });
}

void Peer::close(const Deadline& deadline) {
  if (process_generation_ != fork_generation()) return;  // the parent's connection
  if (alive()) {
    if (!poller_->wait([this] { return !alive() || idle(); }, deadline)) give_up();
  }
  host_.leave(shared_from_this());
  const Deadline soon = Deadline::after(Deadline::Seconds(5));  // the progress thread's turn
  poller_->wait([this] { return left_.load(std::memory_order_acquire); }, soon);
  wait_for_its_copies();
}

void Peer::give_up() {
  if (!alive() || idle()) return;
  std::int64_t under_way = 0;
  for (const auto& [name, stats] : book_->rows()) under_way += stats->under_way.load();
  given_up_.store(static_cast<std::uint64_t>(std::max<std::int64_t>(under_way, 0)));
}

// Copies that it, or this process for it, began before the end are done.
void Peer::wait_for_its_copies() {
  std::shared_ptr<ipc::Visitor> visitor;
  {
    const std::lock_guard lock(mutex_);
    visitor = dismissed_.lock();
  }
  const Deadline soon = Deadline::after(ipc::kLongestCopy);
  if (!ipc::await_copies([&] { return !staging_->answering(); }, soon)) {
    report("a copy of GPU memory that peer '" + identity_.name +
           "' had asked for does not end: the GPU hangs or failed");
  }
  const auto done = [&] { return !visitor || !visitor->at_work(); };
  if (ipc::await_copies(done, soon)) return;
  report("peer '" + identity_.name + "'" +
         ipc::why_unended(visitor->gpu_at_work(), "memory of this process"));
}

}  // namespace zerohop::engine
