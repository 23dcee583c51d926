// The short ways of p2p between host arrays: what ends within the call, where nothing is under way.
#include <tuple>

#include "base/ticks.hpp"
#include "engine/peer.hpp"

namespace zerohop::engine {

// The short way, without any list: one range, mapped and reached before, with nothing under way.
// Null: not this one.
Peer::Transferring Peer::copy_at_once(ibv_wr_opcode opcode, const Pair& pair,
                                      const TransferOptions& options) {
  const auto& [local, remote] = std::tie(*pair.first, *pair.second);
  if (!neighbour_ || options.stream) return nullptr;
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  check_pair(pair, is_write ? kRemoteWrite : kRemoteRead);
  const Run run{local.layout().address, remote.layout.address, local.layout().nbytes()};
  if (run.nbytes == 0 || run.nbytes > kCopiedInCall || !local.layout().is_contiguous() ||
      !remote.layout.is_contiguous()) {
    return nullptr;
  }
  const auto way = neighbour_->known(remote.local_key);
  if (!way || !way->window->covers(run.b_address, run.b_address + run.nbytes) ||
      (is_write && !way->window->writable)) {
    return nullptr;
  }
  if (!may_be_at_once(options)) return nullptr;
  const Memory::Use used = local.use();  // alive while it is copied
  if (!used) return nullptr;
  const auto notify = [&](std::byte* board) noexcept {
    if (options.notify) Neighbour::notify(board, *way->visit, notify_message(*options.notify));
  };
  return at_once(is_write ? Operation::write : Operation::read, run.nbytes, &*way->window, options,
                 [&] {
                   const auto direction = is_write ? ipc::Direction::write : ipc::Direction::read;
                   return way->visit->copy(*way->window, direction, run, notify);
                 });
}

// The same for a notification alone.
Peer::Transferring Peer::notify_at_once(const TransferOptions& options) {
  if (!neighbour_ || options.stream || !options.notify) return nullptr;
  const auto visit = neighbour_->known_board();
  if (!visit || !may_be_at_once(options)) return nullptr;
  const auto notify = [&](std::byte* board) noexcept {
    Neighbour::notify(board, *visit, notify_message(*options.notify));
  };
  return at_once(Operation::notify, 0, nullptr, options, [&] { return visit->at_board(notify); });
}

// Whether nothing is under way that it would overtake.
bool Peer::may_be_at_once(const TransferOptions& options) const {
  if (copies_queued_.load(std::memory_order_acquire) > 0 || gpu_copies_->pending()) return false;
  const DeviceWork work = device_work();
  return !work.pending && !(work.unseen && options.notify);
}

// Null: move() could not.
template <typename MoveIt>
Peer::Transferring Peer::at_once(Operation operation, std::uint64_t nbytes,
                                 const ipc::Window* window, const TransferOptions& options,
                                 MoveIt&& move) {
  auto transfer = std::make_shared<Transfer>(nullptr, nbytes, neighbour_->route(window));
  transfer->show(operation, identity_.name);
  transfer->note_begun();
  RouteStats& stats = *transfer->route().stats;
  const std::uint64_t times = stats.times_of_next(operation);
  const std::uint64_t begun = times > 0 ? ticks::now() : 0;
  if (move() != ipc::Copied::all) return nullptr;
  if (options.notify) RouteStats::add(stats.notifications, 1);
  stats.begin(operation, nbytes);
  if (times > 0) stats.end(operation, ticks::nanoseconds(begun, ticks::now()), times);
  transfer->end_at_once();
  return transfer;
}

}  // namespace zerohop::engine
