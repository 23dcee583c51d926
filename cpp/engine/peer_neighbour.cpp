// What a Peer moves by itself, as it is a process of this host: the p2p route for host memory.
//
// Short copies are made in the call, long ones by the Endpoint's thread for them, and those of one
// Peer in the order of the calls. Between copies and what devices do for the Peer the order is kept
// by waiting: a copy waits for the devices a moment, and leaves itself to them where that is not
// enough; a device's work waits for the copies.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "engine/peer.hpp"

namespace zerohop::engine {
namespace {

constexpr Deadline::Seconds kDeviceMoment{1e-3};
// Bytes copied in the call: a fraction of a millisecond, and far longer than it takes to wake the
// thread.
constexpr std::uint64_t kInCall = std::uint64_t{1} << 20;

}  // namespace

void Peer::meet(std::string doorway, const ipc::Token& token) {
  if (!host_.neighbourhood || doorway.empty()) return;
  poller_->expect_neighbours();
  neighbour_ = std::make_unique<Neighbour>(std::move(doorway), token);
}

bool Peer::device_at_work() const {
  if (staging_->pending()) return true;
  const std::lock_guard lock(group_->mutex);
  return std::ranges::any_of(paths_,
                             [](const auto& path) { return path && path->jobs_pending() > 0; });
}

bool Peer::messages_under_way() const {
  const std::lock_guard lock(group_->mutex);
  return std::ranges::any_of(paths_,
                             [](const auto& path) { return path && path->messages_under_way(); });
}

void Peer::wait_for_copies(const Deadline& until) const {
  if (copies_queued_.load(std::memory_order_acquire) == 0) return;
  if (poller_->wait([this] { return copies_queued_.load() == 0; }, until)) return;
  throw TransferTimeout("earlier copies to or from peer '" + identity_.name +
                        "' did not end in time, so nothing was transferred: give a longer timeout");
}

std::string Peer::why_no_neighbour() const {
  if (!host_.neighbourhood) return host_.no_neighbourhood;
  return neighbour_ ? "" : "the peer's Endpoint offers none (it has p2p=0?)";
}

// A window, or the reason why there is none. Memory without elements needs none.
Neighbour::Reached Peer::reach_as_neighbour(const Pair& pair) const {
  const auto& [local, remote] = pair;
  Neighbour::Reached none;
  if (!neighbour_) {
    none.reason = why_no_neighbour();
  } else if (!local->on_host() || remote->device != "cpu") {
    none.reason = "this build maps host memory only";
  } else if (remote->layout.count() == 0) {
    return neighbour_->reach_board();
  } else if (remote->local_key == 0) {
    none.reason = "the remote memory was registered without a key for it";
  } else {
    return neighbour_->reach(*remote);
  }
  return none;
}

bool Peer::wait_for_devices() const {
  return !device_at_work() ||
         poller_->wait([this] { return !device_at_work(); }, Deadline::after(kDeviceMoment));
}

// Null, with the reason, where a device has to.
Peer::Transferring Peer::copy_as_neighbour(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                           const TransferOptions& options, std::string& reason) {
  if (!neighbour_) return reason = why_no_neighbour(), nullptr;
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  if (auto done = copy_at_once(opcode, pairs, options)) return done;
  NeighbourCopy copy;
  copy.direction = is_write ? ipc::Direction::write : ipc::Direction::read;
  copy.pieces.reserve(pairs.size());
  std::uint64_t nbytes = 0;
  Neighbour::Reached last;
  if (pairs.empty()) last = neighbour_->reach_board();
  for (const Pair& pair : pairs) {
    check_pair(pair, is_write ? kRemoteWrite : kRemoteRead);
    last = reach_as_neighbour(pair);
    if (last.window && is_write && !last.window->writable) last.reason = "it is to be read only";
    if (!last.reason.empty()) break;
    if (!last.window) continue;
    nbytes += pair.first->layout().nbytes();
    copy.pieces.push_back({.local = pair.first->layout(),
                           .remote = pair.second->layout,
                           .window = std::move(last.window),
                           .owner = pair.first->pinned()});
  }
  if (last.reason.empty() && !wait_for_devices()) {
    last.reason = "a device has earlier work with this peer to do";
  }
  if (!last.reason.empty()) return reason = std::move(last.reason), nullptr;
  neighbour_->stats().count(opcode, nbytes);
  const ipc::Window* window = copy.pieces.empty() ? nullptr : copy.pieces.front().window.get();
  copy.transfer = std::make_shared<Transfer>(poller_, nbytes, Neighbour::route(window));
  copy.visit = std::move(last.visit);
  if (options.notify) copy.message = notify_message(*options.notify);
  return begin_copy(std::move(copy));
}

// The short way, without any list: one range, mapped, with nothing under way. Null: not this one.
Peer::Transferring Peer::copy_at_once(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                      const TransferOptions& options) {
  if (pairs.size() != 1 || copies_queued_.load(std::memory_order_acquire) > 0) return nullptr;
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  const auto& [local, remote] = pairs.front();
  const Layout& ours = local->layout();
  const Layout& theirs = remote->layout;
  const std::uint64_t nbytes = ours.nbytes();
  if (nbytes == 0 || nbytes > kInCall || !ours.is_contiguous() || !theirs.is_contiguous()) {
    return nullptr;
  }
  check_pair(pairs.front(), is_write ? kRemoteWrite : kRemoteRead);
  const Neighbour::Reached reached = reach_as_neighbour(pairs.front());
  const ipc::Window* window = reached.window.get();
  if (window == nullptr || !window->pages || (is_write && !window->writable)) return nullptr;
  if (device_at_work()) return nullptr;
  const auto pinned = local->pinned();  // alive while it is copied
  auto transfer = std::make_shared<Transfer>(poller_, nbytes, Neighbour::route(window));
  const auto direction = is_write ? ipc::Direction::write : ipc::Direction::read;
  const auto outcome =
      reached.visit->copy(*window, direction, {ours.address, theirs.address, nbytes});
  if (outcome != ipc::Copied::all) return nullptr;
  neighbour_->stats().count(opcode, nbytes);
  std::optional<Message> message;
  if (options.notify) message = notify_message(*options.notify);
  finish_copy(transfer, *reached.visit, message);
  return transfer;
}

Peer::Transferring Peer::begin_copy(NeighbourCopy&& copy) {
  auto transfer = copy.transfer;
  if (transfer->nbytes() <= kInCall && copies_queued_.load(std::memory_order_acquire) == 0) {
    make_copy(copy);
    return transfer;
  }
  const auto queue = host_.copy_queue.lock();
  if (!queue) throw Error("this Endpoint is closed: make a new one");
  copies_queued_.fetch_add(1);
  try {
    queue->put([self = shared_from_this(), copy = std::move(copy)] {
      self->make_copy(copy);
      self->copies_queued_.fetch_sub(1);
      self->poller_->wake();
    });
  } catch (...) {
    copies_queued_.fetch_sub(1);
    throw;
  }
  return transfer;
}

void Peer::make_copy(const NeighbourCopy& copy) noexcept {
  std::uint64_t copied = 0;
  for (const auto& piece : copy.pieces) {
    Runs runs(piece.local, piece.remote);
    const ipc::Copied outcome =
        copy.visit->copy(*piece.window, copy.direction, runs, copied, lost_);
    if (outcome == ipc::Copied::all) continue;
    copy.transfer->fail(why_not_copied(outcome, copied));
    copy.transfer->drop();
    return;
  }
  finish_copy(copy.transfer, *copy.visit, copy.message);
}

Failure Peer::why_not_copied(ipc::Copied outcome, std::uint64_t nbytes) const {
  const Effect effect = nbytes > 0 ? Effect::some : Effect::nothing;
  const std::string may =
      std::string(" (") + effect_name(effect) + " of the data may have been written)";
  if (outcome == ipc::Copied::gone || outcome == ipc::Copied::stopped) {
    return {.kind = Failure::Kind::peer_lost,
            .message = "peer '" + identity_.name + "' is lost: its process has ended" + may,
            .effect = effect};
  }
  return {.kind = Failure::Kind::verbs,
          .message = "transfer with peer '" + identity_.name +
                     "' failed: " + rdma::completion_status_name(IBV_WC_REM_ACCESS_ERR) +
                     ": the peer's memory was closed by its owner, or unmapped" + may,
          .code = IBV_WC_REM_ACCESS_ERR,
          .effect = effect};
}

// A notification must not overtake earlier ones that a device carries: then it follows them.
void Peer::finish_copy(const Transferring& transfer, const ipc::Visit& visit,
                       const std::optional<Message>& message) noexcept {
  if (!message) return transfer->drop();
  if (!messages_under_way()) {
    Neighbour::notify(visit, message->tag, message->value);
    return transfer->drop();
  }
  try {
    Job job(transfer, IBV_WR_RDMA_WRITE);
    job.then(*message);
    message_path().submit_message(std::move(job), deadline({}));
  } catch (const std::exception&) {
    transfer->fail(Failure::of_current_exception());
    transfer->drop();
  }
}

}  // namespace zerohop::engine
