// What GPUs of this process move for a Peer, on one host: a GPU copies by itself, from and to
// memory of the other process that is mapped for it, and memory of the host that is page-locked.
#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "engine/peer/peer.hpp"

namespace zerohop::engine {

// The GPU that makes all copies of one call. Why not; empty: it is that one.
std::string Peer::take_device(GpuMove& move, const std::shared_ptr<const gpu::Device>& device) {
  if (move.device && move.device->ordinal() != device->ordinal()) {
    return "the arrays lie on several GPUs: move each by a call of its own";
  }
  move.device = device;
  return "";
}

// Null, with the reason, where a device has to.
Peer::Transferring Peer::copy_by_gpu(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                     const TransferOptions& options, std::string& reason) {
  if (!neighbour_) return reason = why_no_neighbour(), nullptr;
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  const Neighbour::Patience patience = patience_of(options);
  GpuMove move;
  GpuReach reached;  // of the pair before, and its key
  std::uint64_t key = 0;
  for (const Pair& pair : pairs) {
    check_pair(pair, is_write ? kRemoteWrite : kRemoteRead);
    const auto& [local, remote] = pair;
    auto pinned = local->pinned();
    if (remote->layout.count() == 0) {  // but for its place in a stream
      if (!move.device) move.device = pinned->device;
      continue;
    }
    // Both sides are asked anew only where the pair leaves what was found for the one before.
    if (remote->local_key != key || !GpuReach::covers(reached.remote, remote->layout.extent())) {
      reached = reach_by_gpu(pair, options.stream, patience);
      key = remote->local_key;
      reason = reached.reason;
      if (reason.empty()) reason = hold(move, reached, is_write);
    } else if (move.kept.others.back() != pinned ||
               !GpuReach::covers(reached.local, local->layout().extent())) {
      reach_local(reached, *local, patience);
      reason = reached.reason;
    }
    const auto& copies = pinned->device ? pinned->device : reached.device;
    if (reason.empty()) reason = take_device(move, copies);
    if (!reason.empty()) return nullptr;
    if (!move.route) move.route = reached.route;
    move.nbytes += local->layout().nbytes();
    GpuRanges ranges(reached.local.span(), reached.remote.span(), is_write);
    Runs runs(local->layout(), remote->layout);
    for (Run run{}; runs.next(run);) {
      while (run.nbytes > 0) move.ranges.push_back(ranges.cut(run, run.nbytes));
    }
    auto& owners = move.kept.others;
    if (owners.empty() || owners.back() != pinned) owners.push_back(std::move(pinned));
  }
  if (!reached.visit) reached.visit = neighbour_->reach_board(patience).visit;
  return begin_gpu_move(opcode, std::move(move), std::move(reached.visit), options, reason);
}

// The short way, without any list: one range between GPUs, in a chunk reached before, that nobody
// is notified of. Null: not this one.
Peer::Transferring Peer::copy_by_gpu_at_once(ibv_wr_opcode opcode, const Pair& pair,
                                             const TransferOptions& options) {
  const auto& [local, remote] = std::tie(*pair.first, *pair.second);
  const bool fits = !options.stream && !options.notify && !local.on_host() && !remote.on_host();
  if (!neighbour_ || !fits) return nullptr;
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  check_pair(pair, is_write ? kRemoteWrite : kRemoteRead);
  const Run run{local.layout().address, remote.layout.address, local.layout().nbytes()};
  if (run.nbytes == 0 || !local.layout().is_contiguous() || !remote.layout.is_contiguous()) {
    return nullptr;
  }
  auto pinned = local.pinned();
  const std::shared_ptr<const gpu::Device> device = pinned->device;
  const auto way = neighbour_->known_by_gpu(remote.local_key, device->ordinal());
  const auto place = way ? way->place.lock() : nullptr;
  if (!place || !place->window->covers(run.b_address, run.b_address + run.nbytes) ||
      (is_write && !place->window->writable)) {
    return nullptr;
  }
  if (copies_queued_.load(std::memory_order_acquire) > 0 || device_work().pending) return nullptr;
  GpuReach::Held held{{place->window, place}, ipc::Visit::hold(way->visit, *place->window)};
  // Asked behind the hold: either this sees the end, or the owner the hold.
  if (way->visit->refusal(place->window.get()) != ipc::Copied::all) return nullptr;
  const std::uint64_t there = place->memory->at(run.b_address);
  const gpu::CopyPiece range{.from = is_write ? run.a_address : there,
                             .to = is_write ? there : run.a_address,
                             .nbytes = run.nbytes};
  const Deadline until = deadline(options.timeout);
  auto transfer = std::make_shared<Transfer>(poller_, run.nbytes, way->route);
  count(*transfer, opcode, /*data=*/true, /*notifies=*/false);
  GpuCopies::Work work{.transfer = transfer, .finish = nullptr, .kept = {}};
  work.kept.windows.push_back(std::move(held));
  work.kept.others.push_back(std::move(pinned));
  gpu_copies_->begin(
      {.device = device, .ranges = {&range, 1}, .nbytes = run.nbytes, .stream = {}, .put = {}},
      std::move(work), until);
  if (!alive()) cut_off_gpu_copies();
  return transfer;
}

// The same, for what is found.
Peer::Transferring Peer::begin_gpu_move(ibv_wr_opcode opcode, GpuMove&& move,
                                        std::shared_ptr<ipc::Visit> visit,
                                        const TransferOptions& options, std::string& reason) {
  const Deadline until = deadline(options.timeout);
  if (!move.device) wait_for_stream(options, until);
  if (!visit) return reason = "its process does not answer", nullptr;
  if (!wait_for_devices(options)) {
    return reason = "a device has earlier work with this peer to do", nullptr;
  }
  wait_for_host_copies(until);
  return begin_gpu_copy(opcode, std::move(move), std::move(visit), options, until);
}

// Keeps the owner from taking the memory away as long as the move does. Why not; empty: it does.
std::string Peer::hold(GpuMove& move, const GpuReach& reached, bool is_write) {
  auto& held = move.kept.windows;
  for (const auto& part : reached.parts) {
    const ipc::Window& window = *part.window;
    if (is_write && !window.writable) return "it is to be read only";
    if (!held.empty() && held.back().part.window == part.window) continue;
    held.push_back({part, ipc::Visit::hold(reached.visit, window)});
    // Asked behind the hold: either this sees the end, or the owner the hold.
    if (reached.visit->refusal(&window) != ipc::Copied::all) {
      return "its owner has closed that memory, or ended the connection";
    }
  }
  return "";
}

Peer::Transferring Peer::begin_gpu_copy(ibv_wr_opcode opcode, GpuMove&& move,
                                        std::shared_ptr<ipc::Visit> visit,
                                        const TransferOptions& options, const Deadline& until) {
  if (!move.route) move.route = neighbour_->route(nullptr);  // nothing but a notification
  auto transfer = std::make_shared<Transfer>(poller_, move.nbytes, std::move(move.route));
  NeighbourEnd after{.transfer = transfer, .visit = std::move(visit), .message = {}};
  if (options.notify) after.message = notify_message(*options.notify);
  count(*transfer, opcode, move.device != nullptr, options.notify.has_value());
  GpuCopies::Copy copy{.device = move.device,
                       .ranges = move.ranges.span(),
                       .pieces = move.pieces,
                       .nbytes = move.nbytes,
                       .stream = options.stream,
                       .put = {}};
  if (options.notify && copy.device) let_gpu_put(copy, move, after, patience_of(options));
  const bool nothing_to_do = move.nbytes == 0 && !copy.stream;
  GpuCopies::Work work{.transfer = transfer,
                       .notifies = options.notify && !after.put_by_gpu,
                       .finish = nullptr,
                       .kept = std::move(move.kept)};
  if (options.notify) {
    work.finish = [self = shared_from_this(), after = std::move(after)] {
      self->finish_copy(after, Room::take);
    };
  }
  if (nothing_to_do || !copy.device) {
    gpu_copies_->follow(std::move(work), until);
  } else {
    gpu_copies_->begin(copy, std::move(work), until);
  }
  if (!alive()) cut_off_gpu_copies();
  return transfer;
}

// The GPU puts the notification by itself, right behind its copies, where that cannot overtake
// others: those that devices carry, and what is to end before.
void Peer::let_gpu_put(GpuCopies::Copy& copy, GpuMove& move, NeighbourEnd& after,
                       const Neighbour::Patience& patience) {
  if (move.nbytes == 0 || device_work().unseen || gpu_copies_->notifies()) return;
  if (!copy.stream && gpu_copies_->pending()) return;
  auto place = neighbour_->place_for_gpu(after.visit, copy.device, *after.message, patience);
  if (place.put.slot == 0) return;
  copy.put = place.put;
  move.kept.others.push_back(std::move(place.pages));
  if (place.twin.hold) move.kept.windows.push_back(std::move(place.twin));
  after.put_by_gpu = true;
}

// The connection has ended: what the GPU has begun it ends by itself.
void Peer::cut_off_gpu_copies() const {
  gpu_copies_->cut_off(why_not_copied(ipc::Copied::left, Effect::some));
}

}  // namespace zerohop::engine
