#include "engine/path/verbs/device_path.hpp"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/report.hpp"
#include "engine/path/verbs/atomics.hpp"

namespace zerohop::engine {
namespace {

void check_required(const std::string& kind, const Route& taken) {
  if (kind.empty() || kind == taken.kind) return;
  throw RouteUnavailable("route '" + kind + "' is not available: of the device routes only '" +
                         taken.kind + "' is, because " + taken.reason);
}

}  // namespace

Routes::Kind DevicePath::kind(const Pair& pair) const {
  const auto& [local, remote] = std::tie(*pair.local, *pair.remote);
  const bool remote_on_host = remote.device == "cpu";
  if (remote.staged()) return Routes::Kind::staged;
  // The peer's device refuses a wrong key; but without any key no rail can be used for staging.
  const bool needs_key = !remote_on_host || local.staged();
  if (needs_key && !remote.reachable() && remote.layout.count() > 0) {
    throw RouteUnavailable(
        "no route to " + remote.device + " of peer '" + s_.state->name() +
        "': no device reached that memory when it was registered; register it there again");
  }
  if (local.staged()) return Routes::Kind::staged;
  return local.on_host() && remote_on_host ? Routes::Kind::host : Routes::Kind::gpu;
}

void DevicePath::end() noexcept try {
  s_.rails->close([state = s_.state](Effect effect) { return state->lost(effect); });
} catch (const std::exception& error) {  // out of memory
  report(error.what());
}

Deadline DevicePath::wait_for_turn(const TransferOptions& options) const {
  const Deadline until = s_.state->deadline(options.timeout);
  s_.streams->wait(options, until);
  if (!options.for_kernel && !options.in_turn) s_.pending->wait_for_copies(until);
  return until;
}

TransferPtr DevicePath::begin(const Call& call, std::string& why_not) {
  if (auto posted = begin_at_once(call)) return posted;
  const TransferOptions& options = call.options;
  if (options.briefly) return nullptr;
  if (call.pages != nullptr) {
    return begin({call.opcode, PagePairs(*call.pages).pairs, options}, why_not);
  }
  const Move move = plan(call);
  const Deadline until = wait_for_turn(options);
  return post(call.opcode, call.pairs, move, room_until(options, until));
}

DevicePath::Move DevicePath::plan(const Call& call) const {
  const TransferOptions& options = call.options;
  Move move{
      .notification = options.notify, .for_kernel = options.for_kernel, .visible = options.visible};
  // Without pairs: a notification alone, which lies in host memory.
  if (call.pairs.empty()) check_required(options.require, *routes_.over(move.kind, 1));
  for (const Pair& pair : call.pairs) {
    move.nbytes += pair.local->layout().nbytes();
    const Routes::Kind taken = kind(pair);
    if (!options.require.empty()) check_required(options.require, *routes_.over(taken, 1));
    move.kind = std::max(move.kind, taken);  // the slowest way of any pair
  }
  return move;
}

RailMask DevicePath::rails_of(const Pair& pair, Routes::Kind kind) const {
  if (s_.rails->count() > 1 && kind != Routes::Kind::staged) {
    return stripe({&pair, 1}, pair.local->layout().nbytes()).rails();
  }
  return RailMask{1} << s_.rails->group()->message_rail();
}

Striping DevicePath::stripe(std::span<const Pair> pairs, std::uint64_t nbytes) const {
  const RailMask reached = s_.rails->reach(pairs);
  if (reached == 0) {
    throw RouteUnavailable("no rail reaches both arrays of this transfer with peer '" +
                           s_.state->name() + "': register them again on both sides");
  }
  const RailGroup& group = *s_.rails->group();
  const RailIndex nearest =
      pairs.empty() ? group.message_rail() : pairs.front().local->nearest_rail();
  const RailMask usable = reached & group.serving();
  // If no rail works, the transfer waits on one for its repair, or fails with it.
  if (usable == 0) return {nbytes, reached & (~reached + 1), UINT64_MAX, nearest};
  return {nbytes, usable, s_.stripe_bytes, nearest};
}

Piece DevicePath::make_piece(const Pair& pair, RemoteAccess needed, RailIndex rail,
                             Transfer& transfer) const {
  s_.state->check(pair, needed);
  const auto& [local, remote] = std::tie(*pair.local, *pair.remote);
  auto registration = local.registration();
  const Piece piece{.local = local.layout(),
                    .remote = remote.layout,
                    .lkey = registration->lkey(rail),
                    .rkey = remote.rkeys[rail],
                    .on_host = local.on_host()};
  transfer.keep(std::move(registration));
  return piece;
}

Job DevicePath::make_job(ibv_wr_opcode opcode, std::span<const Pair> pairs, RailIndex rail,
                         const TransferPtr& transfer) const {
  Job job(transfer, opcode);
  job.reserve(pairs.size());
  for (const Pair& pair : pairs) job.add(make_piece(pair, needed_by(opcode), rail, *transfer));
  return job;
}

Job DevicePath::make_share(ibv_wr_opcode opcode, std::span<const Pair> pairs, const Stripe& stripe,
                           const TransferPtr& transfer) const {
  std::uint64_t at = 0;  // bytes before pair `first`
  std::size_t first = 0;
  const auto nbytes_of = [&](std::size_t i) { return pairs[i].local->layout().nbytes(); };
  while (first < pairs.size() && at + nbytes_of(first) <= stripe.begin) at += nbytes_of(first++);
  std::uint64_t end = at;
  std::size_t last = first;
  while (last < pairs.size() && end < stripe.begin + stripe.nbytes) end += nbytes_of(last++);
  Job job = make_job(opcode, pairs.subspan(first, last - first), stripe.rail, transfer);
  job.restrict(stripe.begin - at, stripe.nbytes);
  return job;
}

TransferPtr DevicePath::post(ibv_wr_opcode opcode, std::span<const Pair> pairs, const Move& move,
                             const Deadline& until) {
  if (s_.rails->count() > 1) {
    if (!move.for_kernel) wait_for_program(pairs, until);
    return post_striped(opcode, pairs, move, until);
  }
  PeerRail& peer_rail = *s_.rails->at(0);
  auto transfer = std::make_shared<Transfer>(s_.poller, move.nbytes, routes_.over(move.kind, 1));
  Job job = make_job(opcode, pairs, 0, transfer);
  if (move.visible && opcode == IBV_WR_RDMA_WRITE) job.read_back();
  if (move.notification) job.then(notify_message(*move.notification));
  if (!move.for_kernel) wait_for_program(pairs, until);
  peer_rail.stats().count(opcode, move.nbytes);
  count_operation(*transfer, opcode, !pairs.empty(), move.notification.has_value(),
                  s_.state->name());
  peer_rail.submit(std::move(job), until);
  return transfer;
}

// The short way for one range of host memory on one rail, or for a notification alone; null: not
// possible.
TransferPtr DevicePath::begin_at_once(const Call& call) {
  const auto& [opcode, pairs, options, pages, on_gpus] = call;
  const bool is_plain = options.require.empty() && !options.stream && !options.for_kernel &&
                        !options.visible && s_.rails->count() == 1;
  if (!is_plain || on_gpus || pages != nullptr || pairs.size() > 1) return nullptr;
  if (s_.pending->any() || (options.briefly && !brief())) return nullptr;
  if (pairs.empty() && !options.notify) return nullptr;
  PeerRail::Range range{.opcode = opcode};
  std::shared_ptr<const Registration> registration;
  if (!pairs.empty()) {
    const Pair& pair = pairs.front();
    const auto& [local, remote] = std::tie(*pair.local, *pair.remote);
    s_.state->check(pair, needed_by(opcode));
    range.run = single_run(pair);
    if (range.run.nbytes == 0) return nullptr;
    registration = local.registration();
    range.lkey = registration->lkey(0);
    range.rkey = remote.rkeys[0];
  }
  auto transfer =
      std::make_shared<Transfer>(s_.poller, range.run.nbytes, routes_.over(Routes::Kind::host, 1));
  if (registration) transfer->keep(std::move(registration));
  std::optional<Message> message;
  if (options.notify) message = notify_message(*options.notify);
  const bool posted = s_.rails->at(0)->submit_at_once(transfer, range, message, options.briefly);
  return posted ? transfer : nullptr;
}

TransferPtr DevicePath::post_striped(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                     const Move& move, const Deadline& until) {
  std::optional<Message> message;
  if (move.notification) message = notify_message(*move.notification);
  for (;;) {
    const Striping striping = stripe(pairs, move.nbytes);
    auto transfer = std::make_shared<Transfer>(s_.poller, move.nbytes,
                                               routes_.over(move.kind, striping.rails()));
    Shares shares;
    shares.reserve(striping.stripes().size());
    if (!pairs.empty()) {
      // On a single rail all pairs, so that empty ones are checked as well.
      const bool whole = striping.stripes().size() == 1;
      for (const Stripe& stripe : striping.stripes()) {
        shares.push_back({stripe.rail, whole ? make_job(opcode, pairs, stripe.rail, transfer)
                                             : make_share(opcode, pairs, stripe, transfer)});
      }
    }
    for (Share& share : shares) {
      if (move.visible && opcode == IBV_WR_RDMA_WRITE) share.job.read_back();
    }
    if (!submit(shares, striping.rails(), message, opcode, transfer)) continue;
    for (const Stripe& stripe : striping.stripes()) {
      const auto& peer_rail = s_.rails->at(stripe.rail);
      peer_rail->stats().count(opcode, stripe.nbytes);
      peer_rail->wait_for_room(until);
    }
    return transfer;
  }
}

// False if a rail failed since the transfer was planned: nothing was submitted.
bool DevicePath::submit(Shares& shares, RailMask planned, const std::optional<Message>& message,
                        ibv_wr_opcode opcode, const TransferPtr& transfer) {
  RailGroup& group = *s_.rails->group();
  const std::lock_guard lock(group.mutex);
  const RailMask serving = group.serving();
  if (serving != 0 && (planned & ~serving) != 0) return false;
  count_operation(*transfer, opcode, !shares.empty(), message.has_value(), s_.state->name());
  const RailIndex behind = group.message_rail();
  const bool fused = message && shares.size() == 1 && shares.front().rail == behind;
  const bool apart = message && !fused;
  if (fused) {
    shares.front().job.then(*message);
    shares.front().job.await(group.make_fence(behind));
  }
  const std::size_t jobs = shares.size() + (apart ? 1 : 0);
  if (jobs > 1) transfer->set_striped();
  for (std::size_t i = 1; i < jobs; ++i) transfer->hold();
  for (Share& share : shares) {
    if (opcode == IBV_WR_RDMA_WRITE && share.rail != behind) share.job.read_back();
    s_.rails->at(share.rail)->enqueue(std::move(share.job));
  }
  if (apart) {
    Job last(transfer, opcode);
    last.then(*message);
    last.await(group.make_fence(behind));
    s_.rails->at(behind)->enqueue(std::move(last));
  }
  if (jobs == 0) transfer->drop();
  return true;
}

void DevicePath::check_word(const RemoteMemory& word) const {
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
  s_.state->check_its(word);
  if (word.staged()) {
    throw RouteUnavailable("there are no atomics with memory on " + word.device + " of peer '" +
                           s_.state->name() +
                           "', which is staged through the host: keep counters in host memory");
  }
}

TransferPtr DevicePath::atomic(ibv_wr_opcode opcode, const RemoteMemory& word,
                               const Operands& operands, const Deadline& until) {
  PeerRail& peer_rail = s_.rails->atomics_rail();
  check_atomics(peer_rail.served_by(), word);
  const std::uint32_t rkey = word.rkeys[peer_rail.rail()];
  if (rkey == 0) {
    throw RouteUnavailable("atomics with peer '" + s_.state->name() + "' go over " +
                           peer_rail.served_by().name() +
                           ", which does not reach this memory: register it again there");
  }
  const Routes::Kind kind = word.device == "cpu" ? Routes::Kind::host : Routes::Kind::gpu;
  auto transfer =
      std::make_shared<Transfer>(s_.poller, 8, routes_.over(kind, RailMask{1} << peer_rail.rail()));
  transfer->count(Operation::atomic, s_.state->name());
  peer_rail.submit(
      Job::atomic(transfer, opcode, word.layout.address, rkey, operands.add, operands.swap), until);
  return transfer;
}

bool DevicePath::has_atomics(const RemoteMemory& remote) const {
  const PeerRail& peer_rail = s_.rails->atomics_rail();
  if (remote.staged() || remote.rkeys[peer_rail.rail()] == 0) return false;
  try {
    check_atomics(peer_rail.served_by(), remote);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

EntryReach DevicePath::reach_for_entries(const Pair& pair) const {
  const auto& [local, remote] = std::tie(*pair.local, *pair.remote);
  const RailMask rail = RailMask{1} << s_.rails->group()->message_rail();
  return {.local = local.registration(),
          .puts = (remote.access & kRemoteWrite) != 0,
          .gets = local.writable() && (remote.access & kRemoteRead) != 0,
          .atomics = has_atomics(remote),
          .route = routes_.over(kind(pair), rail)};
}

std::shared_ptr<const Route> DevicePath::route(const Pair& pair, std::string& why_not) const {
  const auto& [local, remote] = std::tie(*pair.local, *pair.remote);
  const Routes::Kind taken = kind(pair);
  Route route = *routes_.over(taken, rails_of(pair, taken));
  if (!local.on_host()) route.reason += "; " + local.choice()->reason;
  if (remote.staged()) route.reason += "; the peer's devices do not reach its " + remote.device;
  route.reason += "; not by p2p, because " + why_not;
  const Rails& devices = s_.rails->devices();
  if (devices.size() == 1) return std::make_shared<const Route>(std::move(route));
  if (!local.place().empty()) {
    route.reason += "; the nearest to " + local.place() + ", where the local array lies, is " +
                    devices[local.nearest_rail()]->name();
  }
  for (const PeerRails::Report& rail : s_.rails->reports()) {
    if (!rail.trouble.empty())
      route.reason += "; " + rail.device + " does not serve: " + rail.trouble;
  }
  return std::make_shared<const Route>(std::move(route));
}

}  // namespace zerohop::engine
