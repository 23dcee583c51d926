#include "engine/peer.hpp"

#include <stdexcept>
#include <utility>

#include "base/buffer.hpp"
#include "base/error.hpp"
#include "base/fork.hpp"

namespace zerohop::engine {
namespace {

void check_notification(const Notification& notification) {
  if (notification.slot >= Board::kSlots) {
    throw std::out_of_range("notification slot " + std::to_string(notification.slot) +
                            " is out of range: slots go from 0 to " +
                            std::to_string(Board::kSlots - 1));
  }
  if (notification.value == 0) {
    throw std::invalid_argument(
        "a notification value must not be 0, which means an empty slot: use 1 to 2**32 - 1");
  }
}

void check_kind(const std::string& kind) {
  for (const char* known : {"", "p2p", "gpudirect", "staged", "host"}) {
    if (kind == known) return;
  }
  throw std::invalid_argument("there is no route '" + kind +
                              "': routes are p2p, gpudirect, staged and host");
}

// send and recv copy through message slots, which the CPU does.
void check_on_host(const Memory& memory, const char* call) {
  if (memory.on_host()) return;
  throw RouteUnavailable(std::string(call) + " moves host memory only, not that of " +
                         memory.device() + ": use write or read, with notify");
}

Message notify_message(const Notification& notification) {
  return {.kind = MessageKind::notify, .tag = notification.slot, .value = notification.value};
}

}  // namespace

Peer::Peer(Host host, Identity identity)
    : host_(std::move(host)),
      host_route_(std::make_shared<const Route>(
          Route{.kind = "host",
                .device = host_.device,
                .reason = "both arrays lie in host memory, which " + host_.device +
                          " reads and writes by itself; " + host_.device + " serves because " +
                          host_.device_reason,
                .settings = {}})),
      gpudirect_route_(std::make_shared<const Route>(Route{
          .kind = "gpudirect",
          .device = host_.device,
          .reason = host_.device + " reads and writes GPU memory by itself; it serves because " +
                    host_.device_reason,
          .settings = {}})),
      process_generation_(fork_generation()),
      identity_(std::move(identity)) {}

std::shared_ptr<Peer> Peer::create(Host host, PathServices services, Identity identity) {
  std::shared_ptr<Peer> peer(new Peer(std::move(host), std::move(identity)));
  std::weak_ptr<Peer> weak = peer;
  peer->path_ = VerbsPath::create(std::move(services), peer->identity_.name, [weak] {
    if (auto alive = weak.lock()) alive->host_.repair(alive);
  });
  return peer;
}

void Peer::become_alive() noexcept { state_.store(State::alive, std::memory_order_release); }

bool Peer::lose(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (state_.load() == State::lost) return false;
    lost_reason_ = "peer '" + identity_.name + "' is lost: " + reason;
    state_.store(State::lost, std::memory_order_release);
  }
  path_->close([text = lost_reason_](Effect effect) {
    return Failure{
        .kind = Failure::Kind::peer_lost,
        .message = text + " (" + effect_name(effect) + " of the data may have been written)",
        .effect = effect};
  });
  return true;
}

void Peer::check_process() const {
  if (process_generation_ == fork_generation()) return;
  throw Error(
      "this Peer belongs to the process that connected it: after fork(), make a new Endpoint in "
      "the "
      "child");
}

void Peer::throw_lost(Effect effect) const {
  const std::lock_guard lock(mutex_);
  throw PeerLost(lost_reason_ + "; connect again", 0, effect);
}

void Peer::check_alive() const {
  check_process();
  if (state_.load(std::memory_order_acquire) == State::lost) throw_lost(Effect::nothing);
}

Deadline Peer::deadline(const std::optional<double>& timeout) const {
  return Deadline::after(Deadline::Seconds(timeout.value_or(host_.default_timeout)));
}

Route Peer::route(const Memory& local, const RemoteMemory& remote) const {
  Route taken = *choose_route(local, remote);
  if (!local.on_host()) taken.reason += "; " + local.registration()->reason;
  taken.settings = path_->settings();
  return taken;
}

const Peer::RoutePtr& Peer::choose_route(const Memory& local, const RemoteMemory& remote) const {
  const bool remote_on_host = remote.device == "cpu";
  if (!remote_on_host && remote.rkey == 0 && remote.layout.count() > 0) {
    throw RouteUnavailable("no route to " + remote.device + " of peer '" + identity_.name +
                           "': its adapter cannot reach that memory; copy it to the host there");
  }
  return local.on_host() && remote_on_host ? host_route_ : gpudirect_route_;
}

const Peer::RoutePtr& Peer::route_of(std::span<const Pair> pairs) const {
  for (const auto& [local, remote] : pairs) {
    if (choose_route(*local, *remote) == gpudirect_route_) return gpudirect_route_;
  }
  return host_route_;
}

Piece Peer::make_piece(const Memory& local, const RemoteMemory& remote, RemoteAccess needed,
                       Transfer& transfer) const {
  if (local.endpoint() != host_.own_id) {
    throw RegistrationError(
        "this memory is registered with another Endpoint: register it with the "
        "one whose Peer is to move it");
  }
  if (remote.endpoint != identity_.id) {
    throw std::invalid_argument("this RemoteMemory belongs to endpoint " + to_hex(remote.endpoint) +
                                ", not to peer '" + identity_.name + "'");
  }
  if ((remote.access & needed) == 0) {
    throw std::invalid_argument(needed == kRemoteWrite
                                    ? "the remote memory is read-only: its owner registered a "
                                      "read-only array, or with writable=False"
                                    : "the remote memory may not be read");
  }
  if (needed == kRemoteRead && !local.writable()) {
    throw std::invalid_argument("cannot read into a read-only array: register a writable one");
  }
  const bool is_write = needed == kRemoteWrite;
  check_same_shape(is_write ? local.layout() : remote.layout,
                   is_write ? remote.layout : local.layout());
  Piece piece{.local = local.layout(),
              .remote = remote.layout,
              .rkey = remote.rkey,
              .on_host = local.on_host()};
  auto pinned = local.pinned();
  if (pinned->region) piece.lkey = pinned->region->lkey();
  transfer.keep(std::move(pinned));
  return piece;
}

Peer::Transferring Peer::transfer(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                  const TransferOptions& options) {
  check_alive();
  if (options.notify) check_notification(*options.notify);
  check_kind(options.require);
  std::uint64_t nbytes = 0;
  for (const auto& [local, remote] : pairs) nbytes += local->layout().nbytes();
  auto transfer = std::make_shared<Transfer>(path_->poller(), nbytes);
  Job job(transfer, opcode);
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  job.reserve(pairs.size());
  for (const auto& [local, remote] : pairs) {
    const Route& taken = *choose_route(*local, *remote);
    if (!options.require.empty() && options.require != taken.kind) {
      throw RouteUnavailable("route '" + options.require + "' is not available: only '" +
                             taken.kind + "' is, because " + taken.reason);
    }
    job.add(make_piece(*local, *remote, is_write ? kRemoteWrite : kRemoteRead, *transfer));
  }
  if (options.notify) job.then(notify_message(*options.notify));
  auto& moved = is_write ? stats().bytes_out : stats().bytes_in;
  moved.fetch_add(nbytes, std::memory_order_relaxed);
  path_->submit(std::move(job), deadline(options.timeout));
  return transfer;
}

Peer::Transferring Peer::write(std::span<const Pair> pairs, const TransferOptions& options) {
  return transfer(IBV_WR_RDMA_WRITE, pairs, options);
}

Peer::Transferring Peer::read(std::span<const Pair> pairs, const TransferOptions& options) {
  return transfer(IBV_WR_RDMA_READ, pairs, options);
}

Peer::Transferring Peer::atomic(ibv_wr_opcode opcode, const RemoteMemory& word, std::uint64_t add,
                                std::uint64_t swap) {
  check_alive();
  const DType& dtype = word.layout.dtype;
  const bool integer = dtype.code == kDTypeInt || dtype.code == kDTypeUInt;
  if (word.layout.count() != 1 || !integer || dtype.itemsize() != 8 ||
      word.layout.address % 8 != 0) {
    throw std::invalid_argument(
        "an atomic needs one int64 or uint64 element, aligned to 8 bytes: "
        "select one, instead of " +
        shape_string(word.layout.shape.span()) + " of " + dtype.name() + " at address " +
        std::to_string(word.layout.address));
  }
  if (word.endpoint != identity_.id) {
    throw std::invalid_argument("this RemoteMemory belongs to endpoint " + to_hex(word.endpoint) +
                                ", not to peer '" + identity_.name + "'");
  }
  if (word.access != (kRemoteRead | kRemoteWrite)) {
    throw std::invalid_argument("the remote memory is read-only: atomics need a writable array");
  }
  auto transfer = std::make_shared<Transfer>(path_->poller(), 8);
  path_->submit(Job::atomic(transfer, opcode, word.layout.address, word.rkey, add, swap),
                deadline({}));
  return transfer;
}

Peer::Transferring Peer::fetch_add(const RemoteMemory& word, std::uint64_t value) {
  return atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, word, value, 0);
}

Peer::Transferring Peer::compare_swap(const RemoteMemory& word, std::uint64_t expected,
                                      std::uint64_t desired) {
  return atomic(IBV_WR_ATOMIC_CMP_AND_SWP, word, expected, desired);
}

Peer::Transferring Peer::notify(const Notification& notification) {
  return transfer(IBV_WR_RDMA_WRITE, {}, {.notify = notification, .require = {}, .timeout = {}});
}

Peer::Transferring Peer::send(const Memory& from, std::uint32_t tag) {
  check_alive();
  check_on_host(from, "send");
  const auto pinned = from.pinned();
  const std::uint64_t nbytes = from.layout().nbytes();
  stats().bytes_out.fetch_add(nbytes, std::memory_order_relaxed);
  if (nbytes > path_->eager_limit()) return send_offer(from, tag);
  auto transfer = std::make_shared<Transfer>(path_->poller(), nbytes);
  std::vector<std::byte> payload(nbytes);
  if (nbytes > 0) pack(from.layout(), payload);
  Job job(transfer, IBV_WR_RDMA_WRITE);
  job.then({.kind = MessageKind::eager, .tag = tag, .nbytes = nbytes}, std::move(payload));
  path_->submit(std::move(job), deadline({}));
  return transfer;
}

Peer::Transferring Peer::send_offer(const Memory& from, std::uint32_t tag) {
  auto transfer = std::make_shared<Transfer>(path_->poller(), from.layout().nbytes());
  auto pinned = from.pinned();
  std::uint64_t address = from.layout().address;
  if (!from.layout().is_contiguous()) {
    // The receiver reads one range: a strided array is packed into one first.
    auto packed = std::make_shared<Buffer>(from.layout().nbytes());
    pack(from.layout(), {packed->data(), packed->nbytes()});
    address = packed->address();
    auto region = host_.registrations->find_or_create({address, address + packed->nbytes()},
                                                      /*writable=*/false, /*shared=*/false);
    pinned = std::make_shared<const Pinned>(std::move(region), std::move(packed));
  }
  const Message message{.kind = MessageKind::offer,
                        .tag = tag,
                        .value = pinned->region->rkey(),
                        .nbytes = transfer->nbytes(),
                        .address = address};
  transfer->keep(std::move(pinned));
  path_->offer(transfer, message, deadline({}));
  return transfer;
}

Peer::Transferring Peer::receive(const Memory& into, std::uint32_t tag) {
  check_process();
  check_on_host(into, "recv");
  if (!into.writable()) {
    throw std::invalid_argument("cannot receive into a read-only array: register a writable one");
  }
  auto transfer = std::make_shared<Transfer>(path_->poller(), into.layout().nbytes());
  auto pinned = into.pinned();
  PostedReceive receive{.tag = tag, .into = into.layout(), .transfer = transfer};
  if (pinned->region) receive.lkey = pinned->region->lkey();
  transfer->keep(std::move(pinned));
  path_->receive(std::move(receive));
  return transfer;
}

std::optional<RemoteMemory> Peer::lookup(const std::string& name, const Deadline& deadline,
                                         bool now) {
  check_alive();
  if (name.size() > kMaxNameBytes) {
    throw std::invalid_argument("a name has at most " + std::to_string(kMaxNameBytes) + " bytes");
  }
  auto answer = std::make_shared<Answer>();
  std::uint64_t request = 0;
  {
    const std::lock_guard lock(mutex_);
    request = next_request_++;
    lookups_.emplace(request, answer);
  }
  host_.tell(shared_from_this(), Lookup{.request = request, .name = name});
  const bool answered = path_->poller()->wait(
      [&] { return answer->found.load() || (now && answer->arrived.load()) || !alive(); },
      deadline);
  {
    const std::lock_guard lock(mutex_);
    lookups_.erase(request);
  }
  if (answer->found.load()) return answer->memory;
  if (!alive()) throw_lost(Effect::nothing);
  if (answered) return std::nullopt;
  throw TransferTimeout("peer '" + identity_.name + "' " +
                        (answer->arrived.load() ? "does not share anything under the name '"
                                                : "did not answer the look-up of '") +
                        name + "' in time: share it there, or give a longer timeout");
}

void Peer::on_found(std::uint64_t request, std::optional<RemoteMemory> memory) {
  std::shared_ptr<Answer> answer;
  {
    const std::lock_guard lock(mutex_);
    const auto found = lookups_.find(request);
    if (found == lookups_.end() || found->second->found.load()) return;  // nobody waits any more
    answer = found->second;
  }
  if (memory) {
    answer->memory = std::move(*memory);
    answer->found.store(true);
  }
  answer->arrived.store(true);
  path_->poller()->wake();
}

void Peer::close(const Deadline& deadline) {
  if (process_generation_ != fork_generation()) return;  // the parent's connection
  if (alive()) {
    path_->poller()->wait([this] { return !alive() || path_->idle(); }, deadline);
  }
  host_.leave(shared_from_this());
  const Deadline soon = Deadline::after(Deadline::Seconds(5));  // the progress thread's turn
  path_->poller()->wait([this] { return state_.load() == State::lost; }, soon);
}

}  // namespace zerohop::engine
