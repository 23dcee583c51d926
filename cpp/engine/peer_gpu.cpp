// What a Peer moves between GPU memory of this process and of its own, on one host: the GPU copies
// by itself, from and to mapped memory of the other process.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "engine/gpu_ranges.hpp"
#include "engine/peer.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/user_stream.hpp"

namespace zerohop::engine {
namespace {

// Whether the places, which are in order and without gaps, are where that memory lies.
bool cover(const std::vector<GpuWindows::Place>& places, const Extent& extent) {
  return !places.empty() && places.front().window->begin <= extent.begin &&
         extent.end <= places.back().window->end;
}

}  // namespace

bool Peer::between_gpus(std::span<const Pair> pairs) {
  return std::ranges::any_of(pairs, [](const Pair& pair) {
    return !pair.first->on_host() && pair.second->device != "cpu";
  });
}

Neighbour::ReachedByGpu Peer::reach_by_gpu(const Pair& pair,
                                           const Neighbour::Patience& patience) const {
  const auto& [local, remote] = pair;
  if (remote->local_key != 0) {
    return neighbour_->reach_by_gpu(*remote, local->pinned()->device, patience);
  }
  return {.visit = nullptr,
          .places = {},
          .reason = "the remote memory was registered without a key for it"};
}

Neighbour::Reached Peer::reach_gpu_as_neighbour(const Pair& pair,
                                                const Neighbour::Patience& patience) const {
  if (pair.second->layout.count() == 0) return neighbour_->reach_board(patience);
  auto found = reach_by_gpu(pair, patience);
  Neighbour::Reached reached{
      .visit = std::move(found.visit), .window = nullptr, .reason = std::move(found.reason)};
  if (!found.places.empty()) {
    reached.window = found.places.front().window;
    reached.by_gpu = neighbour_->gpu_route(*pair.first->pinned()->device, pair.second->device,
                                           *found.places.front().link);
  }
  return reached;
}

// Null, with the reason, where a device has to.
Peer::Transferring Peer::copy_by_gpu(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                     const TransferOptions& options, std::string& reason) {
  if (!neighbour_) return reason = why_no_neighbour(), nullptr;
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  const Neighbour::Patience patience = patience_of(options);
  GpuMove move;
  Neighbour::ReachedByGpu reached;  // of the pair before, and its key
  std::uint64_t key = 0;
  for (const Pair& pair : pairs) {
    check_pair(pair, is_write ? kRemoteWrite : kRemoteRead);
    const auto& [local, remote] = pair;
    if (remote->layout.count() == 0) {  // but for its place in a stream
      if (!move.device && !local->on_host()) move.device = local->pinned()->device;
      continue;
    }
    if (local->on_host() || remote->device == "cpu") {
      return reason = "of the pairs some lie in host memory: move those by a call of their own",
             nullptr;
    }
    auto pinned = local->pinned();
    if (move.device && move.device->ordinal() != pinned->device->ordinal()) {
      return reason = "the local arrays lie on several GPUs: move each by a call of its own",
             nullptr;
    }
    move.device = pinned->device;
    // The windows are asked anew only where the pair leaves those of the one before.
    if (remote->local_key != key || !cover(reached.places, remote->layout.extent())) {
      reached = reach_by_gpu(pair, patience);
      key = remote->local_key;
      if (reached.places.empty()) return reason = std::move(reached.reason), nullptr;
      reason = hold(move, reached.places, is_write, reached.visit);
      if (!reason.empty()) return nullptr;
    }
    if (!move.route) {
      move.route =
          neighbour_->gpu_route(*move.device, remote->device, *reached.places.front().link);
    }
    move.nbytes += local->layout().nbytes();
    GpuRanges ranges(reached.places, is_write);
    Runs runs(local->layout(), remote->layout);
    for (Run run{}; runs.next(run);) {
      while (run.nbytes > 0) move.ranges.push_back(ranges.cut(run, run.nbytes));
    }
    if (move.kept.back() != pinned) move.kept.push_back(std::move(pinned));
  }
  if (!reached.visit) reached.visit = neighbour_->reach_board(patience).visit;
  return begin_gpu_move(opcode, std::move(move), std::move(reached.visit), options, reason);
}

// The same, for what is found.
Peer::Transferring Peer::begin_gpu_move(ibv_wr_opcode opcode, GpuMove&& move,
                                        std::shared_ptr<ipc::Visit> visit,
                                        const TransferOptions& options, std::string& reason) {
  const Deadline until = deadline(options.timeout);
  if (options.stream && move.device) {
    const gpu::DeviceGuard guard(*move.device);
    gpu::check_stream(*move.device, *options.stream);
  }
  if (!visit) return reason = "its process does not answer", nullptr;
  if (!wait_for_devices(options)) {
    return reason = "a device has earlier work with this peer to do", nullptr;
  }
  wait_for_host_copies(until);
  return begin_gpu_copy(opcode, std::move(move), std::move(visit), options, until);
}

// Keeps the owner from taking the memory away as long as the move does. Why not; empty: it does.
std::string Peer::hold(GpuMove& move, const std::vector<GpuWindows::Place>& places, bool is_write,
                       const std::shared_ptr<ipc::Visit>& visit) {
  for (const auto& [window, memory, link] : places) {
    if (is_write && !window->writable) return "it is to be read only";
    const bool held = !move.windows.empty() && move.windows.back() == window;
    if (held) continue;
    move.windows.push_back(window);
    move.kept.push_back(std::make_shared<const ipc::Visit::Hold>(visit, window->entry.slot));
    move.kept.push_back(memory);
    // Asked behind the hold: either this sees the end, or the owner the hold.
    if (visit->refusal(window.get()) != ipc::Copied::all) {
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
  NeighbourCopy after{.transfer = transfer, .visit = std::move(visit), .pieces = {}, .message = {}};
  if (options.notify) after.message = notify_message(*options.notify);
  count(*transfer, opcode, move.device != nullptr, options.notify.has_value());
  GpuCopies::Copy copy{.device = move.device,
                       .ranges = std::move(move.ranges),
                       .pieces = move.pieces,
                       .nbytes = move.nbytes,
                       .stream = options.stream,
                       .put = {}};
  if (options.notify && copy.device) let_gpu_put(copy, move, after, patience_of(options));
  const bool nothing_to_do = move.nbytes == 0 && !copy.stream;
  GpuCopies::Work work{
      .transfer = transfer,
      .notifies = options.notify && !after.put_by_gpu,
      .finish = [self = shared_from_this(),
                 after = std::move(after)] { self->finish_copy(after, Room::take); },
      .kept = std::move(move.kept)};
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
void Peer::let_gpu_put(GpuCopies::Copy& copy, GpuMove& move, NeighbourCopy& after,
                       const Neighbour::Patience& patience) {
  if (move.nbytes == 0 || device_work().unseen || gpu_copies_->notifies()) return;
  if (!copy.stream && gpu_copies_->pending()) return;
  auto place = neighbour_->place_for_gpu(after.visit, copy.device, *after.message, patience);
  if (place.put.slot == 0) return;
  copy.put = place.put;
  std::ranges::move(place.kept, std::back_inserter(move.kept));
  after.put_by_gpu = true;
}

// The connection has ended: what the GPU has begun it ends by itself.
void Peer::cut_off_gpu_copies() const {
  gpu_copies_->cut_off(why_not_copied(ipc::Copied::left, Effect::some));
}

}  // namespace zerohop::engine
