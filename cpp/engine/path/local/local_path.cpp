#include "engine/path/local/local_path.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace zerohop::engine {
namespace {

constexpr Deadline::Seconds kDeviceMoment{1e-3};

shm::Copied copy_piece(const NeighbourCopy& copy, const NeighbourCopy::Piece& piece,
                       std::uint64_t& copied) noexcept {
  if (!piece.runs.empty()) {
    return copy.session->copy(*piece.mapping, copy.direction, piece.runs, copied);
  }
  Runs runs(piece.local, piece.remote);
  return copy.session->copy(*piece.mapping, copy.direction, runs, copied);
}

// How long the page of running copies shared by two processes may stay full.
constexpr Deadline::Seconds kCrowded{1};

// Copies from the current piece.
shm::Copied copy_step(NeighbourCopy& copy) noexcept {
  auto& [begun, at, cursor, nbytes, until] = copy.progress;
  const NeighbourCopy::Piece& piece = copy.pieces[at];
  if (!cursor) {
    cursor = piece.runs.empty() ? shm::Cursor(shm::Pieces<Runs>(Runs(piece.local, piece.remote)))
                                : shm::Cursor(shm::Pieces<shm::RunList>(shm::RunList(piece.runs)));
  }
  const shm::Copied outcome =
      copy.session->copy_step(*piece.mapping, copy.direction, *cursor, nbytes);
  if (outcome == shm::Copied::all) {
    cursor.reset();
    ++at;
  }
  return outcome;
}

// Whether `most` has passed since the first call.
bool passed(std::optional<Deadline>& until, Deadline::Seconds most) {
  if (!until) until = Deadline::after(most);
  return until->passed();
}

}  // namespace

void LocalPath::meet(std::string local_server, const shm::Token& token) {
  if (!s_.no_neighbourhood.empty() || local_server.empty()) return;
  s_.poller->expect_neighbours();
  neighbour_ = std::make_shared<Neighbour>(std::move(local_server), token, s_.book);
}

void LocalPath::sweep() {
  if (neighbour_) neighbour_->sweep();
}

void LocalPath::leave() noexcept {
  if (neighbour_) neighbour_->leave();
}

std::string LocalPath::why_not() const {
  if (neighbour_) return "";
  if (!s_.no_neighbourhood.empty()) return s_.no_neighbourhood;
  return "the peer's Endpoint has p2p=0 (or ZEROHOP_P2P=0), or lacks descriptors (ulimit -n)";
}

void LocalPath::wait_for_host_copies(const Deadline& until) const {
  if (!copies_queued()) return;
  if (s_.poller->wait([this] { return !copies_queued(); }, until)) return;
  throw TransferTimeout("earlier copies to or from peer '" + s_.state->name() +
                        "' did not end in time, so nothing was transferred: give a longer timeout");
}

void LocalPath::wait_for_copies(const Deadline& until) const {
  wait_for_host_copies(until);
  if (!s_.gpu_copies->pending()) return;
  const bool ended =
      s_.poller->wait([this] { return !s_.gpu_copies->pending() || !s_.state->alive(); }, until);
  s_.state->check_alive();
  if (ended) return;
  throw TransferTimeout("GPU copies to or from peer '" + s_.state->name() +
                        "' did not end in time, so nothing was transferred: give a longer timeout");
}

// A mapping, or the reason why there is none. Memory without elements needs no mapping.
Neighbour::Reached LocalPath::reach(const Pair& pair, const Neighbour::Patience& patience) const {
  const auto& [local, remote] = pair;
  Neighbour::Reached none;
  if (!neighbour_) {
    none.reason = why_not();
  } else if (remote->layout.count() == 0) {
    return neighbour_->reach_board(patience);
  } else if (remote->local_key == 0) {
    none.reason =
        "its owner does not let the remote memory be mapped, as it can be revoked (a Grant)";
  } else {
    return neighbour_->reach(*remote, patience);
  }
  return none;
}

bool LocalPath::wait_for_devices(const TransferOptions& options) const {
  const auto idle = [this] { return !s_.staged->device_work().pending; };
  if (idle()) return true;
  return s_.poller->wait(idle, options.require.empty() ? Deadline::after(kDeviceMoment)
                                                       : s_.state->deadline(options.timeout));
}

// Null, with the reason, if a device must move it.
Transferring LocalPath::copy(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                             const TransferOptions& options, std::string& reason) {
  if (!neighbour_) return reason = why_not(), nullptr;
  s_.streams->wait(options, s_.state->deadline(options.timeout));
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  const Neighbour::Patience patience = this->patience(options);
  NeighbourCopy copy;
  copy.direction = is_write ? shm::Direction::write : shm::Direction::read;
  Neighbour::Reached last;
  if (pairs.empty()) last = neighbour_->reach_board(patience);
  for (const Pair& pair : pairs) {
    s_.state->check(pair, needed_by(opcode));
    last = reach(pair, patience);
    if (last.mapping && is_write && !last.mapping->writable) last.reason = "it is read-only";
    if (!last.reason.empty()) break;
    if (!last.mapping) continue;
    copy.nbytes += pair.first->layout().nbytes();
    copy.pieces.push_back({.local = pair.first->layout(),
                           .remote = pair.second->layout,
                           .mapping = std::move(last.mapping),
                           .owner = pair.first->pinned()});
  }
  return begin(opcode, std::move(copy), std::move(last), options, reason);
}

Transferring LocalPath::copy_pages(ibv_wr_opcode opcode, const Pages& pages,
                                   const TransferOptions& options, std::string& reason) {
  const Pair whole{pages.local, pages.remote};
  if (!neighbour_) return reason = why_not(), nullptr;
  s_.streams->wait(options, s_.state->deadline(options.timeout));
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  Neighbour::Reached reached = reach(whole, patience(options));
  if (reached.mapping && is_write && !reached.mapping->writable) {
    reached.reason = "it is read-only";
  }
  if (!reached.reason.empty()) return reason = std::move(reached.reason), nullptr;
  NeighbourCopy copy;
  copy.direction = is_write ? shm::Direction::write : shm::Direction::read;
  copy.nbytes = pages.nbytes();
  copy.pieces.push_back({.local = pages.local->layout(),
                         .remote = pages.remote->layout,
                         .mapping = std::move(reached.mapping),
                         .owner = pages.local->pinned()});
  std::vector<Run>& runs = copy.pieces.back().runs;
  runs.reserve(pages.count());
  PageRuns all(pages);
  for (Run run{}; all.next(run);) runs.push_back(run);
  return begin(opcode, std::move(copy), std::move(reached), options, reason);
}

// `last`: the last memory reached. Null, with its reason or another one, as above.
Transferring LocalPath::begin(ibv_wr_opcode opcode, NeighbourCopy&& copy, Neighbour::Reached&& last,
                              const TransferOptions& options, std::string& reason) {
  if (last.reason.empty() && !wait_for_devices(options)) {
    last.reason = "a device has earlier work with this peer pending";
  }
  if (!last.reason.empty()) return reason = std::move(last.reason), nullptr;
  const bool behind_gpus = s_.gpu_copies->pending() && !options.in_turn;
  if (behind_gpus && copy.nbytes > 0) wait_for_copies(s_.state->deadline(options.timeout));
  const shm::RemoteMapping* mapping =
      copy.pieces.empty() ? nullptr : copy.pieces.front().mapping.get();
  copy.transfer = std::make_shared<Transfer>(s_.poller, copy.nbytes, neighbour_->route(mapping));
  count_begin(*copy.transfer, opcode, !copy.pieces.empty(), options.notify.has_value(),
              s_.state->name());
  copy.session = std::move(last.session);
  if (options.notify) copy.message = notify_message(*options.notify);
  copy.room = options.room;
  if (behind_gpus && copy.nbytes == 0) return finish_behind_gpus(std::move(copy), options);
  return begin_copy(std::move(copy));
}

// A notification alone follows GPU copies without blocking any thread.
Transferring LocalPath::finish_behind_gpus(NeighbourCopy&& copy, const TransferOptions& options) {
  auto transfer = copy.transfer;
  const Deadline until = s_.state->deadline(options.timeout);
  wait_for_host_copies(until);
  s_.gpu_copies->follow(
      transfer,
      [self = shared_from_this(), after = NeighbourEnd(std::move(copy))] {
        self->finish(after, Room::take);
      },
      until);
  if (!s_.state->alive()) cut_off_gpu_copies();
  return transfer;
}

Transferring LocalPath::begin_copy(NeighbourCopy&& copy) {
  auto transfer = copy.transfer;
  if (transfer->nbytes() <= kCopiedInCall && !copies_queued()) {
    make_copy(copy);
    return transfer;
  }
  const auto queue = s_.copy_queue.lock();
  if (!queue) throw Error("this Endpoint is closed: make a new one");
  queued_.fetch_add(1);
  try {
    queue->put(this, [self = shared_from_this(), copy = std::move(copy)]() mutable {
      const CopyQueue::Step step = self->take_step(copy);
      if (step == CopyQueue::Step::done) {
        self->queued_.fetch_sub(1);
        self->s_.poller->wake();
      }
      return step;
    });
  } catch (...) {
    queued_.fetch_sub(1);
    throw;
  }
  return transfer;
}

void LocalPath::make_copy(const NeighbourCopy& copy) noexcept {
  copy.transfer->note_begun();
  std::uint64_t copied = 0;
  for (const auto& piece : copy.pieces) {
    const shm::Copied outcome = copy_piece(copy, piece, copied);
    if (outcome == shm::Copied::all) continue;
    copy.transfer->fail(why_not_copied(outcome, copied > 0 ? Effect::some : Effect::nothing));
    return copy.transfer->drop();
  }
  finish(copy, copy.room);
}

// The same on the thread that all Peers share, which must not block.
CopyQueue::Step LocalPath::take_step(NeighbourCopy& copy) noexcept {
  using enum CopyQueue::Step;
  auto& progress = copy.progress;
  if (!std::exchange(progress.begun, true)) copy.transfer->note_begun();
  const std::uint64_t enough = progress.nbytes + shm::LocalSession::kPiece;
  while (progress.piece < copy.pieces.size()) {
    const shm::Copied outcome = copy_step(copy);
    if (outcome == shm::Copied::crowded && !passed(progress.until, kCrowded)) return later;
    if (outcome != shm::Copied::all && outcome != shm::Copied::part) {
      const Effect effect = progress.nbytes > 0 ? Effect::some : Effect::nothing;
      copy.transfer->fail(why_not_copied(outcome, effect));
      copy.transfer->drop();
      return done;
    }
    progress.until.reset();
    if (progress.nbytes >= enough) return more;
  }
  if (waits_for_room(copy)) return later;
  finish(copy, Room::take);
  return done;
}

// Waits like finish(). The notification is accepted at the deadline even without room: see
// VerbsPath::wait_for_room().
bool LocalPath::waits_for_room(NeighbourCopy& copy) const noexcept {
  if (!copy.message || copy.put_by_gpu || copy.room == Room::take || !s_.state->alive())
    return false;
  if (!s_.staged->device_work().unseen) return false;
  try {
    const Deadline::Seconds most{s_.state->default_timeout()};
    return !s_.rails->message_path().has_room() && !passed(copy.progress.until, most);
  } catch (const std::exception&) {
    return false;  // the peer is lost; finish() handles it
  }
}

void LocalPath::finish(const NeighbourEnd& copy, Room room) noexcept {
  if (!copy.message) return copy.transfer->drop();
  if (copy.put_by_gpu) {
    (void)copy.session->at_board(
        [&](std::byte* board) noexcept { Neighbour::announce(board, *copy.session); });
    return copy.transfer->drop();
  }
  if (s_.staged->device_work().unseen) return notify_by_device(copy.transfer, *copy.message, room);
  const shm::Copied outcome = copy.session->at_board(
      [&](std::byte* board) noexcept { Neighbour::notify(board, *copy.session, *copy.message); });
  if (outcome != shm::Copied::all) {
    copy.transfer->fail(
        why_not_copied(outcome, copy.transfer->nbytes() > 0 ? Effect::all : Effect::nothing));
  }
  copy.transfer->drop();
}

// Behind everything that devices carry. The peer is asked to acknowledge it, so that later
// notifications need no device.
void LocalPath::notify_by_device(const Transferring& transfer, Message message,
                                 Room room) noexcept {
  message.kind = MessageKind::notify_and_tell;
  transfer->note_placed();
  try {
    Job job(transfer, IBV_WR_RDMA_WRITE);
    job.then(message);
    VerbsPath& taken = s_.rails->message_path().submit_message(std::move(job));
    if (room == Room::wait) taken.wait_for_room(s_.state->deadline({}));
  } catch (const std::exception&) {
    transfer->fail(
        why_not_copied(shm::Copied::left, transfer->nbytes() > 0 ? Effect::all : Effect::nothing));
    transfer->drop();
  }
}

Failure LocalPath::why_not_copied(shm::Copied outcome, Effect effect) const noexcept try {
  const auto lost = [&](const std::string& how) {
    return Failure{.kind = Failure::Kind::peer_lost, .message = how}.with_effect(effect);
  };
  const std::string peer = "peer '" + s_.state->name() + "'";
  switch (outcome) {
    case shm::Copied::gone: return lost(peer + " is lost: its process has ended");
    case shm::Copied::dismissed: return lost(peer + " is lost: it has ended the connection");
    case shm::Copied::left: return s_.state->lost(effect);
    case shm::Copied::crowded:
      return Failure{.message = "transfer with " + peer +
                                " failed: the page in which the two processes list their running "
                                "copies stayed full for a second"}
          .with_effect(effect);
    default: break;
  }
  return Failure{.kind = Failure::Kind::verbs,
                 .message = "transfer with " + peer +
                            " failed: " + rdma::completion_status_name(IBV_WC_REM_ACCESS_ERR) +
                            ": the peer closed or dropped that memory; it must keep the "
                            "Memory while others use it, or send the remote of a new one",
                 .code = IBV_WC_REM_ACCESS_ERR}
      .with_effect(effect);
} catch (const std::bad_alloc&) {
  return {.message = "out of memory", .effect = effect};  // short enough to need no allocation
}

void LocalPath::cut_off_gpu_copies() const {
  s_.gpu_copies->cut_off(why_not_copied(shm::Copied::left, Effect::some));
}

}  // namespace zerohop::engine
