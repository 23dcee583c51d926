// What a Peer moves one-sidedly: writes, reads, atomics, notifications.
#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "engine/memory/cuda_table.hpp"
#include "engine/notify/slots.hpp"
#include "engine/path/verbs/atomics.hpp"
#include "engine/peer/peer.hpp"
#include "engine/stream/program_streams.hpp"
#include "gpu/default_stream.hpp"
#include "gpu/user_stream.hpp"

namespace zerohop::engine {
namespace {

void check_kind(const std::string& kind) {
  if (kind.empty()) return;
  for (const char* known : {"p2p", "gpudirect", "staged", "host"}) {
    if (kind == known) return;
  }
  throw std::invalid_argument("there is no route '" + kind +
                              "': routes are p2p, gpudirect, staged and host");
}

void check_required(const std::string& kind, const Route& taken) {
  if (kind.empty() || kind == taken.kind) return;
  throw RouteUnavailable("route '" + kind + "' is not available: of the devices' only '" +
                         taken.kind + "' is, because " + taken.reason);
}

bool is_brief(std::span<const Peer::Pair> pairs) {
  constexpr std::uint64_t kBrief = 4096;  // bytes: copied in a quarter of a microsecond
  return std::ranges::all_of(pairs, [](const Peer::Pair& pair) {
    const auto& [local, remote] = pair;
    return local->on_host() && remote->device == "cpu" && local->layout().nbytes() <= kBrief;
  });
}

// The peer may be waiting in just such a call: neither would ever notify the other.
void check_awaits_nothing(ProgramStreams& streams, driver::CudaStream stream) {
  const auto slot = streams.awaited(stream);
  if (!slot) return;
  throw RouteUnavailable(
      "stream= waits for notification slot " + std::to_string(*slot) +
      ", and this call would wait for the stream: with integrity=1 only a GPU that copies by p2p "
      "takes its turn there. Wait for the notification on the CPU (wait_notify without stream=), "
      "synchronize the stream first, or leave integrity out");
}

}  // namespace

// What the program gave the default stream of the memory's GPU before is done, be it the source's
// content or the last use of the destination: neither an adapter nor a copy waits for it by itself.
void Peer::wait_for_program(const Memory& memory, const Deadline& deadline) {
  if (memory.on_host() || memory.layout().count() == 0) return;
  if (gpu::wait_default_stream(*memory.pinned()->device, deadline)) return;
  throw TransferTimeout("what the default stream of " + memory.device() +
                        " was given did not end in time, so nothing was transferred: give a "
                        "longer timeout");
}

void Peer::wait_for_program(std::span<const Pair> pairs, const Deadline& deadline) {
  const Memory* last = nullptr;  // those of one GPU in a row wait once
  for (const auto& [local, remote] : pairs) {
    if (last != nullptr && last->device() == local->device()) continue;
    wait_for_program(*local, deadline);
    if (local->layout().count() > 0) last = local;
  }
}

// Devices and the CPU know of no streams.
void Peer::wait_for_stream(const TransferOptions& options, const Deadline& deadline) const {
  if (!options.stream) return;
  if (options.compared) check_awaits_nothing(*host_.streams, *options.stream);
  if (gpu::wait_user_stream(cuda_for_stream(host_.cuda), *options.stream, deadline)) return;
  throw TransferTimeout(
      "what the stream was given before did not end in time, so nothing was transferred: give a "
      "longer timeout");
}

Routes::Kind Peer::route_kind(const Memory& local, const RemoteMemory& remote) const {
  const bool remote_on_host = remote.device == "cpu";
  if (remote.staged()) return Routes::Kind::staged;
  // A wrong key is the peer's device to refuse; but without any there is no rail to stage over.
  const bool needs_key = !remote_on_host || local.staged();
  if (needs_key && !remote.reachable() && remote.layout.count() > 0) {
    throw RouteUnavailable(
        "no route to " + remote.device + " of peer '" + identity_.name +
        "': no device reached that memory when it was registered; register it there again");
  }
  if (local.staged()) return Routes::Kind::staged;
  return local.on_host() && remote_on_host ? Routes::Kind::host : Routes::Kind::gpu;
}

// Both are of the two Endpoints that the connection joins.
void Peer::check_ends(const Pair& pair) const {
  const auto& [local, remote] = std::tie(*pair.first, *pair.second);
  if (!same_id(local.endpoint(), host_.own_id)) {
    throw RegistrationError(
        "this memory is registered with another Endpoint: register it with the "
        "one whose Peer is to move it");
  }
  if (!same_id(remote.endpoint, identity_.id)) {
    throw std::invalid_argument("this RemoteMemory belongs to endpoint " + to_hex(remote.endpoint) +
                                ", not to peer '" + identity_.name + "'");
  }
}

void Peer::check_rights(const Pair& pair, RemoteAccess needed) const {
  check_ends(pair);
  const auto& [local, remote] = std::tie(*pair.first, *pair.second);
  if ((remote.access & needed) == 0) {
    throw std::invalid_argument(needed == kRemoteWrite
                                    ? "the remote memory is read-only: its owner registered a "
                                      "read-only array, or with writable=False"
                                    : "the remote memory may not be read");
  }
  if (needed == kRemoteRead && !local.writable()) {
    throw std::invalid_argument(
        "cannot read into a read-only array, or one whose elements overlap: register a "
        "writable one");
  }
}

void Peer::check_pair(const Pair& pair, RemoteAccess needed) const {
  check_rights(pair, needed);
  const Memory& local = *pair.first;
  const RemoteMemory& remote = *pair.second;
  const bool is_write = needed == kRemoteWrite;
  check_same_shape(is_write ? local.layout() : remote.layout,
                   is_write ? remote.layout : local.layout());
}

Piece Peer::make_piece(const Pair& pair, RemoteAccess needed, RailIndex rail,
                       Transfer& transfer) const {
  check_pair(pair, needed);
  const auto& [local, remote] = std::tie(*pair.first, *pair.second);
  auto pinned = local.pinned();
  const Piece piece{.local = local.layout(),
                    .remote = remote.layout,
                    .lkey = pinned->lkey(rail),
                    .rkey = remote.rkeys[rail],
                    .on_host = local.on_host()};
  transfer.keep(std::move(pinned));
  return piece;
}

Job Peer::make_job(ibv_wr_opcode opcode, std::span<const Pair> pairs, RailIndex rail,
                   const Transferring& transfer) const {
  Job job(transfer, opcode);
  job.reserve(pairs.size());
  const RemoteAccess needed = opcode == IBV_WR_RDMA_WRITE ? kRemoteWrite : kRemoteRead;
  for (const Pair& pair : pairs) job.add(make_piece(pair, needed, rail, *transfer));
  return job;
}

void Peer::check_call(const TransferOptions& options) const {
  check_alive();
  if (options.notify) check_notification(*options.notify);
  check_kind(options.require);
}

// There is no p2p, because of that reason.
void Peer::check_not_insisted(const TransferOptions& options, const std::string& reason) {
  check_alive();
  if (options.require.empty()) return note_fall(reason);
  throw RouteUnavailable("route 'p2p' is not available, because " + reason +
                         "; or leave require= out for the routes of devices: host, gpudirect, "
                         "staged");
}

// Told once for each cause; where p2p was never to be, it is none.
void Peer::note_fall(const std::string& reason) noexcept {
  if (!neighbour_ || !falls_.add(reason)) return;
  log(Level::warning, "route", [&] {
    return "a transfer with peer '" + identity_.name +
           "' is left to a device instead of p2p, because " + reason;
  });
}

Peer::Transferring Peer::transfer(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                  const TransferOptions& options) {
  if (options.briefly && !(neighbour_ && is_brief(pairs) && options.may_be_p2p())) return nullptr;
  check_call(options);
  try {
    if (options.briefly) return move_at_once(opcode, pairs, options);
    if (options.may_be_p2p() && (neighbour_ || !options.require.empty())) {
      if (auto done = move_at_once(opcode, pairs, options)) return done;
      std::string reason;
      if (auto copying = copy_as_neighbour(opcode, pairs, options, reason)) return copying;
      check_not_insisted(options, reason);
    }
    if (pairs.size() == 1) {
      if (auto posted = post_at_once(opcode, pairs.front(), options)) return posted;
    }
    return transfer_by_devices(opcode, pairs, options);
  } catch (const std::invalid_argument&) {
    name_wrong_pair(opcode, pairs);
    throw;
  } catch (const RegistrationError&) {
    name_wrong_pair(opcode, pairs);
    throw;
  }
}

// By the short ways of p2p; null: none of them is open.
Peer::Transferring Peer::move_at_once(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                      const TransferOptions& options) {
  if (pairs.size() > 1) return nullptr;
  if (touch_gpus(pairs)) return copy_by_gpu_at_once(opcode, pairs.front(), options);
  Transferring made;  // null, unless a way is taken
  if (pairs.empty()) {
    notify_at_once(options, &made);
  } else {
    copy_at_once(opcode, pairs.front(), options, &made);
  }
  return made;
}

// Throws again what is wrong with the first pair that has something, and which of them it is.
void Peer::name_wrong_pair(ibv_wr_opcode opcode, std::span<const Pair> pairs) const {
  const RemoteAccess needed = opcode == IBV_WR_RDMA_WRITE ? kRemoteWrite : kRemoteRead;
  for (std::size_t i = 0; i < pairs.size() && pairs.size() > 1; ++i) {
    const std::string which = "pair " + std::to_string(i) + ": ";
    try {
      check_pair(pairs[i], needed);
      (void)pairs[i].first->pinned();
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(which + error.what());
    } catch (const RegistrationError& error) {
      throw RegistrationError(which + error.what(), error.code());
    }
  }
}

Peer::Transferring Peer::transfer_by_devices(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                             const TransferOptions& options) {
  // Of no pairs, a notification alone: it lies in host memory.
  if (pairs.empty()) check_required(options.require, *routes_.over(Routes::Kind::host, 1));
  std::uint64_t nbytes = 0;
  Routes::Kind kind = Routes::Kind::host;  // the longest way of any pair
  for (const auto& [local, remote] : pairs) {
    nbytes += local->layout().nbytes();
    const Routes::Kind taken = route_kind(*local, *remote);
    if (!options.require.empty()) check_required(options.require, *routes_.over(taken, 1));
    kind = std::max(kind, taken);
  }
  const Deadline until = deadline(options.timeout);
  wait_for_stream(options, until);
  if (!options.for_kernel && !options.in_turn) wait_for_copies(until);
  Move move{nbytes, kind, options.notify, options.for_kernel, options.visible};
  if (kind == Routes::Kind::staged) {
    if (!move.for_kernel) wait_for_program(pairs, until);
    return stage(opcode, pairs, move, until);
  }
  const Deadline room = options.room == Room::wait ? until : Deadline::after(Deadline::Seconds{0});
  if (options.notify && staging_->pending()) {
    move.notification.reset();
    return notify_behind(transfer_by_device(opcode, pairs, move, room), *options.notify);
  }
  return transfer_by_device(opcode, pairs, move, room);
}

// Before others can end it.
void Peer::count(Transfer& transfer, ibv_wr_opcode opcode, bool data,
                 bool notifies) const noexcept {
  if (notifies) RouteStats::add(transfer.route().stats->notifications, 1);
  transfer.count(!data                         ? Operation::notify
                 : opcode == IBV_WR_RDMA_WRITE ? Operation::write
                                               : Operation::read,
                 identity_.name);
}

Peer::Transferring Peer::transfer_by_device(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                            const Move& move, const Deadline& until) {
  const auto& [nbytes, kind, notification, for_kernel, visible] = move;
  if (group_->rails() > 1) {
    if (!for_kernel) wait_for_program(pairs, until);
    return transfer_over_rails(opcode, pairs, move, until);
  }
  VerbsPath& path = *paths_.front();
  auto transfer = std::make_shared<Transfer>(poller_, nbytes, routes_.over(kind, 1));
  Job job = make_job(opcode, pairs, 0, transfer);
  if (visible && opcode == IBV_WR_RDMA_WRITE) job.read_back();
  if (notification) job.then(notify_message(*notification));
  if (!for_kernel) wait_for_program(pairs, until);
  path.stats().count(opcode, nbytes);
  count(*transfer, opcode, !pairs.empty(), notification.has_value());
  path.submit(std::move(job), until);
  return transfer;
}

Peer::Transferring Peer::write(std::span<const Pair> pairs, const TransferOptions& options) {
  if (!checks(options)) return transfer(IBV_WR_RDMA_WRITE, pairs, options);
  return options.briefly ? nullptr : checked(IBV_WR_RDMA_WRITE, pairs, options);
}

Peer::Transferring Peer::read(std::span<const Pair> pairs, const TransferOptions& options) {
  if (!checks(options)) return transfer(IBV_WR_RDMA_READ, pairs, options);
  return options.briefly ? nullptr : checked(IBV_WR_RDMA_READ, pairs, options);
}

Peer::Transferring Peer::atomic(ibv_wr_opcode opcode, const RemoteMemory& word,
                                const Operands& operands, bool for_kernel) {
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
  if (word.staged()) {
    throw RouteUnavailable("there are no atomics with memory on " + word.device + " of peer '" +
                           identity_.name +
                           "', which is staged through the host: keep counters in host memory");
  }
  const Deadline until = deadline({});
  if (!for_kernel) {
    wait_for_copies(until);
    wait_for_staged(until);
  }
  VerbsPath& path = atomics_path();
  check_atomics(path.served_by(), word);
  const std::uint32_t rkey = word.rkeys[path.rail()];
  if (rkey == 0) {
    throw RouteUnavailable("atomics with peer '" + identity_.name + "' go over " +
                           path.served_by().name() +
                           ", which does not reach this memory: have it registered again there");
  }
  const Routes::Kind kind = word.device == "cpu" ? Routes::Kind::host : Routes::Kind::gpu;
  auto transfer =
      std::make_shared<Transfer>(poller_, 8, routes_.over(kind, RailMask{1} << path.rail()));
  transfer->count(Operation::atomic, identity_.name);
  path.submit(Job::atomic(transfer, opcode, word.layout.address, rkey, operands.add, operands.swap),
              until);
  return transfer;
}

Peer::Transferring Peer::fetch_add(const RemoteMemory& word, std::uint64_t value, bool for_kernel) {
  return atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, word, {.add = value, .swap = 0}, for_kernel);
}

Peer::Transferring Peer::compare_swap(const RemoteMemory& word, std::uint64_t expected,
                                      std::uint64_t desired, bool for_kernel) {
  return atomic(IBV_WR_ATOMIC_CMP_AND_SWP, word, {.add = expected, .swap = desired}, for_kernel);
}

Peer::Transferring Peer::notify(const Notification& notification) {
  return write({}, {.notify = notification, .require = {}, .timeout = {}});
}

}  // namespace zerohop::engine
