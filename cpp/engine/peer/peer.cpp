#include "engine/peer/peer.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "base/report.hpp"

namespace zerohop::engine {

Peer::Peer(std::shared_ptr<const Host> host, std::shared_ptr<Poller> poller, Identity identity)
    : host_(std::move(host)),
      poller_(std::move(poller)),
      book_(host_->books->open()),
      state_(
          std::make_shared<PeerState>(std::move(identity), host_->own_id, host_->default_timeout)),
      streams_(std::make_shared<CallStream>(host_->streams, host_->cuda)),
      pending_(std::make_shared<PendingWork>(state_, poller_)),
      rails_(std::make_shared<PeerRails>(host_->rails, state_, pending_)),
      devices_(
          std::make_shared<DevicePath>(DevicePath::Services{.state = state_,
                                                            .rails = rails_,
                                                            .poller = poller_,
                                                            .pending = pending_,
                                                            .streams = streams_,
                                                            .book = book_,
                                                            .stripe_bytes = host_->stripe_bytes})),
      staged_(std::make_shared<StagedPath>(Staging::Services{.poller = poller_,
                                                             .registrations = host_->registrations,
                                                             .memories = host_->staged_memories,
                                                             .stager = host_->stager,
                                                             .sends = host_->sends,
                                                             .pending = pending_,
                                                             .chunk = host_->staging_chunk},
                                           state_, rails_, devices_)),
      local_(std::make_shared<LocalPath>(
          LocalPath::Services{.state = state_,
                              .poller = poller_,
                              .book = book_,
                              .rails = rails_,
                              .pending = pending_,
                              .copy_queue = host_->copy_queue,
                              .streams = streams_,
                              .no_neighbourhood = host_->no_neighbourhood})),
      gpu_(std::make_unique<GpuPath>(GpuPath::Services{.state = state_,
                                                       .poller = poller_,
                                                       .rails = rails_,
                                                       .pending = pending_,
                                                       .local = local_,
                                                       .streams = streams_,
                                                       .look = host_->look})),
      paths_{gpu_.get(), local_.get(), staged_.get(), devices_.get()},
      messages_(std::make_unique<Messages>(Messages::Services{.state = state_,
                                                              .poller = poller_,
                                                              .rails = rails_,
                                                              .devices = devices_,
                                                              .staged = staged_,
                                                              .pending = pending_,
                                                              .registrations = host_->registrations,
                                                              .sends = host_->sends,
                                                              .checker = host_->checker})) {}

std::shared_ptr<Peer> Peer::create(std::shared_ptr<const Host> host, RailServices services,
                                   Identity identity) {
  std::shared_ptr<Peer> peer(new Peer(std::move(host), services.poller, std::move(identity)));
  peer->join_paths();
  const std::weak_ptr<Peer> weak = peer;
  peer->rails_->open(std::move(services), [weak](RailIndex rail) {
    if (const auto self = weak.lock()) self->host_->repair(self, rail);
  });
  return peer;
}

void Peer::join_paths() {
  if (auto neighbourhood = host_->neighbourhood.lock()) {
    invitation_.emplace(std::move(neighbourhood));
  }
  const auto tell = [weak = weak_from_this()](ControlMessage message) {
    if (const auto self = weak.lock()) self->host_->tell(self, std::move(message));
  };
  const auto notify = [weak = weak_from_this()](const TransferOptions& options) {
    const auto self = weak.lock();
    if (!self) throw PeerLost("the peer is lost");
    return self->transfer({IBV_WR_RDMA_WRITE, {}, options});
  };
  checks_ = std::make_shared<Checks>(Checks::Services{.state = state_,
                                                      .poller = poller_,
                                                      .checker = host_->checker,
                                                      .streams = streams_,
                                                      .tell = tell,
                                                      .notify = notify});
  lookups_ = std::make_shared<Lookups>(state_, poller_, tell);
  kernels_ = std::make_unique<KernelAccess>(
      state_, *gpu_, devices_, std::make_unique<DirectLinks>(state_, poller_, rails_, tell));
}

void Peer::meet(std::string local_server, const shm::Token& token) {
  if (host_->neighbourhood.expired()) return;
  local_->meet(std::move(local_server), token);
  gpu_->meet(book_);
}

void Peer::check_transfers() {
  checks_->begin();
  messages_->check_all();
}

void Peer::become_alive() {
  host_->books->connected(book_, state_->name());
  brief_ = std::ranges::any_of(paths_, [](const Path* path) { return path->brief(); });
  state_->become_alive();
}

bool Peer::lose(const std::string& reason) {
  if (state_->is_lost()) return false;
  // From here on the peer's process starts no access to memory of this one.
  const auto client = invitation_ ? invitation_->withdraw() : nullptr;
  {
    const std::lock_guard lock(mutex_);
    dismissed_ = client;
  }
  state_->lose(reason);
  host_->books->ended(book_, reason);
  for (Path* path : paths_) path->end();
  checks_->end();
  invitation_.reset();
  lookups_->end();
  left_.store(true, std::memory_order_release);
  poller_->wake();
  return true;
}

void Peer::sweep() {
  for (Path* path : paths_) path->sweep();
}

bool Peer::idle() const {
  return !checks_->pending() &&
         std::ranges::all_of(paths_, [](const Path* path) { return path->idle(); });
}

void Peer::close(const Deadline& deadline) {
  if (state_->forked()) return;  // the parent's connection
  if (alive()) {
    if (!poller_->wait([this] { return !alive() || idle(); }, deadline)) count_unfinished();
  }
  host_->disconnect(shared_from_this());
  const Deadline soon = Deadline::after(Deadline::Seconds(5));  // for the progress thread to act
  poller_->wait([this] { return left_.load(std::memory_order_acquire); }, soon);
  wait_for_its_copies();
}

void Peer::count_unfinished() {
  if (!alive() || idle()) return;
  std::int64_t under_way = 0;
  for (const auto& [name, stats] : book_->rows()) under_way += stats->under_way.load();
  unfinished_.store(static_cast<std::uint64_t>(std::max<std::int64_t>(under_way, 0)));
}

// Waits for copies that the peer, or this process on its behalf, began before the end.
void Peer::wait_for_its_copies() {
  std::shared_ptr<shm::LocalClient> client;
  {
    const std::lock_guard lock(mutex_);
    client = dismissed_.lock();
  }
  const auto soon = [] { return Deadline::after(shm::kLongestCopy); };
  if (!shm::await_copies([&] { return !staged_->answering(); }, soon())) {
    report("a copy of GPU memory for peer '" + state_->name() +
           "' does not end: the GPU hangs or failed");
  }
  const auto done = [&] { return !client || !client->at_work(); };
  const auto in_vain = [&] { return client->stays_stopped(); };
  if (shm::await_copies(done, in_vain, soon())) return;
  report("peer '" + state_->name() + "'" +
         shm::why_unended(client->gpu_at_work(), "memory of this process"));
}

Route Peer::route(const Memory& local, const RemoteMemory& remote) const {
  state_->check_alive();
  static_cast<void>(local.registration());  // throws if it is closed
  const Pair pair{&local, &remote};
  // For the reasons of the paths that cannot reach it.
  const TransferOptions options{.notify = {}, .require = "p2p", .timeout = {}};
  const Call call{IBV_WR_RDMA_WRITE, {&pair, 1}, options};
  std::string why_not;
  std::shared_ptr<const Route> found;
  for (const Path* path : paths_) {
    if (!found && path->takes(call)) found = path->route(pair, why_not);
  }
  Route route = *found;
  const RailMask taken = found->kind == "p2p" ? RailMask{1} << rails_->group()->message_rail()
                                              : devices_->rails_of(pair, devices_->kind(pair));
  const auto& path = rails_->at(static_cast<RailIndex>(std::countr_zero(taken)));
  if (path) route.settings = path->settings();
  if (route.settings.empty()) return route;  // closed
  route.settings.insert(route.settings.end(), host_->settings.begin(), host_->settings.end());
  route.settings.emplace_back("integrity", std::int64_t{checks_->on() ? 1 : 0});
  if (host_->rails.size() > 1) route.rails = rails_->settings();
  return route;
}

}  // namespace zerohop::engine
