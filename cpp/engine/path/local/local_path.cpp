#include "engine/path/local/local_path.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace zerohop::engine {
namespace {

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

void LocalPath::end() noexcept {
  if (neighbour_) neighbour_->end();
}

std::string LocalPath::why_not() const {
  if (neighbour_) return "";
  if (!s_.no_neighbourhood.empty()) return s_.no_neighbourhood;
  return "the peer's Endpoint has p2p=0 (or ZEROHOP_P2P=0), or lacks descriptors (ulimit -n)";
}

std::string LocalPath::why_not_mapped() {
  return "its owner does not let the remote memory be mapped: it can be revoked (a Grant), or the "
         "owner has registered more than " +
         std::to_string(shm::GenerationTable::kSlots) + " ranges";
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
    none.reason = why_not_mapped();
  } else {
    return neighbour_->reach(*remote, patience);
  }
  return none;
}

std::shared_ptr<const Route> LocalPath::route(const Pair& pair, std::string& why_not) const {
  Neighbour::Reached reached = reach(pair, patience({}));
  why_not = std::move(reached.reason);
  if (!why_not.empty() || !neighbour_) return nullptr;
  return neighbour_->route(reached.mapping.get());
}

TransferPtr LocalPath::begin(const Call& call, std::string& why_not) {
  if (auto done = begin_at_once(call)) return done;
  const TransferOptions& options = call.options;
  if (options.briefly) return nullptr;
  if (!neighbour_) return why_not = this->why_not(), nullptr;
  const Deadline until = s_.state->deadline(options.timeout);
  s_.streams->wait(options, until);
  NeighbourCopy copy;
  copy.direction = call.is_write() ? shm::Direction::write : shm::Direction::read;
  copy.nbytes = call.nbytes();
  Neighbour::Reached last;
  if (call.pairs.empty()) last = neighbour_->reach_board(patience(options));
  for (const Pair& pair : call.pairs) {
    last = add_piece(copy, pair, call);
    if (!last.reason.empty()) break;
  }
  if (last.reason.empty() && !s_.rails->wait_for_work(options)) {
    last.reason = "a device has earlier work with this peer pending";
  }
  if (!last.reason.empty()) return why_not = std::move(last.reason), nullptr;
  if (s_.pending->gpu_copies > 0 && !options.in_turn) s_.pending->wait_for_copies(until);
  const shm::RemoteMapping* mapping =
      copy.pieces.empty() ? nullptr : copy.pieces.front().mapping.get();
  copy.transfer = std::make_shared<Transfer>(s_.poller, copy.nbytes, neighbour_->route(mapping));
  count_operation(*copy.transfer, call.opcode, !call.pairs.empty(), options.notify.has_value(),
                  s_.state->name());
  copy.session = std::move(last.session);
  if (options.notify) copy.message = notify_message(*options.notify);
  copy.room = options.room;
  return begin_copy(std::move(copy));
}

// Returns what was reached, or the reason why not.
Neighbour::Reached LocalPath::add_piece(NeighbourCopy& copy, const Pair& pair,
                                        const Call& call) const {
  if (call.pages == nullptr) s_.state->check(pair, call.needed());
  Neighbour::Reached reached = reach(pair, patience(call.options));
  if (!reached.mapping) return reached;
  if (call.is_write() && !reached.mapping->writable) reached.reason = "it is read-only";
  if (!reached.reason.empty()) return reached;
  copy.pieces.push_back({.local = pair.local->layout(),
                         .remote = pair.remote->layout,
                         .mapping = reached.mapping,
                         .owner = pair.local->registration()});
  if (call.pages == nullptr) return reached;
  std::vector<Run>& runs = copy.pieces.back().runs;
  runs.reserve(call.pages->count());
  PageRuns all(*call.pages);
  for (Run run{}; all.next(run);) runs.push_back(run);
  return reached;
}

TransferPtr LocalPath::begin_copy(NeighbourCopy&& copy) {
  auto transfer = copy.transfer;
  if (transfer->nbytes() <= kCopiedInCall && s_.pending->host_copies == 0) {
    make_copy(copy);
    return transfer;
  }
  const auto queue = s_.copy_queue.lock();
  if (!queue) throw Error("this Endpoint is closed: make a new one");
  s_.pending->host_copies.fetch_add(1);
  try {
    queue->put(this, [self = shared_from_this(), copy = std::move(copy)]() mutable {
      const CopyQueue::Step step = self->take_step(copy);
      if (step == CopyQueue::Step::done) {
        self->s_.pending->host_copies.fetch_sub(1);
        self->s_.poller->wake();
      }
      return step;
    });
  } catch (...) {
    s_.pending->host_copies.fetch_sub(1);
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
// PeerRail::wait_for_room().
bool LocalPath::waits_for_room(NeighbourCopy& copy) const noexcept {
  if (!copy.message || copy.put_by_gpu || copy.room == Room::take || !s_.state->alive())
    return false;
  if (!s_.rails->work().unseen) return false;
  try {
    const Deadline::Seconds most{s_.state->default_timeout()};
    return !s_.rails->message_rail().has_room() && !passed(copy.progress.until, most);
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
  if (s_.rails->work().unseen) return notify_by_device(copy.transfer, *copy.message, room);
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
void LocalPath::notify_by_device(const TransferPtr& transfer, Message message, Room room) noexcept {
  message.kind = MessageKind::notify_and_tell;
  transfer->note_placed();
  try {
    Job job(transfer, IBV_WR_RDMA_WRITE);
    job.then(message);
    PeerRail& taken = s_.rails->message_rail().submit_message(std::move(job));
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

}  // namespace zerohop::engine
