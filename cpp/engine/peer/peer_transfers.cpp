// Chooses the path of a Peer's call: within the host the CPU or a GPU, otherwise its devices.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/trace.hpp"
#include "engine/notify/slots.hpp"
#include "engine/peer/peer.hpp"

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

bool is_brief(std::span<const Pair> pairs) {
  constexpr std::uint64_t kBrief = 4096;  // bytes: copied in a quarter of a microsecond
  return std::ranges::all_of(pairs, [](const Pair& pair) {
    const auto& [local, remote] = pair;
    return local->on_host() && remote->device == "cpu" && local->layout().nbytes() <= kBrief;
  });
}

void check_one_range(const Layout& layout, const char* which) {
  if (!layout.is_contiguous() || layout.nbytes() == 0) {
    throw std::invalid_argument(
        std::string("a device queue moves contiguous ranges of memory: the ") + which +
        " array must be contiguous and not empty");
  }
}

}  // namespace

void Peer::check_call(const TransferOptions& options) const {
  state_->check_alive();
  if (options.notify) check_notification(*options.notify);
  check_kind(options.require);
}

// p2p is unavailable for that reason: throws if it was required.
void Peer::check_not_insisted(const TransferOptions& options, const std::string& reason) {
  state_->check_alive();
  if (options.require.empty()) return note_fall(reason);
  throw RouteUnavailable("route 'p2p' is not available, because " + reason +
                         "; or leave require= out for the routes of devices: host, gpudirect, "
                         "staged");
}

// Logged once for each reason; without a neighbour p2p was never expected, so nothing is logged.
void Peer::note_fall(const std::string& reason) noexcept {
  if (!neighbour() || !falls_.add(reason)) return;
  log(Level::warning, "route", [&] {
    return "a transfer with peer '" + state_->name() +
           "' is left to a device instead of p2p, because " + reason;
  });
}

Transferring Peer::transfer(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                            const TransferOptions& options) {
  if (options.briefly && !neighbour() && !devices_->posts_briefly()) return nullptr;
  if (options.briefly && !is_brief(pairs)) return nullptr;
  check_call(options);
  try {
    if (options.may_be_p2p() && (neighbour() || !options.require.empty())) {
      if (options.briefly) return neighbour() ? transfer_at_once(opcode, pairs, options) : nullptr;
      if (auto done = transfer_at_once(opcode, pairs, options)) return done;
      std::string reason;
      auto copying = touch_gpus(pairs) ? gpu_->copy(opcode, pairs, options, reason)
                                       : local_->copy(opcode, pairs, options, reason);
      if (copying) return copying;
      check_not_insisted(options, reason);
    }
    const auto alone = [&] {
      return !local_->copies_queued() && !gpu_->pending() && !staged_->pending();
    };
    const bool may_post = !options.briefly || devices_->posts_briefly();
    if (may_post && pairs.size() <= 1 && alone()) {
      if (auto posted = devices_->post_at_once(opcode, pairs, options)) return posted;
    }
    if (options.briefly) return nullptr;
    return transfer_by_devices(opcode, pairs, options);
  } catch (const std::invalid_argument&) {
    name_wrong_pair(opcode, pairs);
    throw;
  } catch (const RegistrationError&) {
    name_wrong_pair(opcode, pairs);
    throw;
  }
}

// Uses a short way of p2p; null: none is available.
Transferring Peer::transfer_at_once(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                    const TransferOptions& options) {
  if (pairs.size() > 1) return nullptr;
  if (touch_gpus(pairs)) return gpu_->copy_at_once(opcode, pairs.front(), options);
  Transferring made;  // null unless a way succeeds
  if (pairs.empty()) {
    local_->notify_at_once(options, &made);
  } else {
    local_->copy_at_once(opcode, pairs.front(), options, &made);
  }
  return made;
}

// Throws the error of the first invalid pair again, with its index.
void Peer::name_wrong_pair(ibv_wr_opcode opcode, std::span<const Pair> pairs) const {
  for (std::size_t i = 0; i < pairs.size() && pairs.size() > 1; ++i) {
    const std::string which = "pair " + std::to_string(i) + ": ";
    try {
      state_->check(pairs[i], needed_by(opcode));
      (void)pairs[i].first->pinned();
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(which + error.what());
    } catch (const RegistrationError& error) {
      throw RegistrationError(which + error.what(), error.code());
    }
  }
}

Transferring Peer::transfer_by_devices(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                       const TransferOptions& options) {
  DevicePath::Move move = devices_->plan(pairs, options);
  const Deadline until = state_->deadline(options.timeout);
  streams_->wait(options, until);
  if (!options.for_kernel && !options.in_turn) local_->wait_for_copies(until);
  if (move.kind == Routes::Kind::staged) {
    if (!move.for_kernel) wait_for_program(pairs, until);
    const RailMask rail = RailMask{1} << rails_->group()->message_rail();
    return staged_->post(opcode, pairs, move, devices_->route(move.kind, rail), until);
  }
  const Deadline room = options.room == Room::wait ? until : Deadline::after(Deadline::Seconds{0});
  if (options.notify && staged_->pending()) {
    move.notification.reset();
    return staged_->notify_behind(devices_->post(opcode, pairs, move, room), *options.notify);
  }
  return devices_->post(opcode, pairs, move, room);
}

// --- checked transfers: see Checks ---

Transferring Peer::checked(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                           const TransferOptions& options) {
  check_call(options);
  if (pairs.empty()) {
    if (!checks_->pending()) return transfer(opcode, pairs, options);
    return checks_->notify_behind(options, devices_->route(Routes::Kind::host, 1));
  }
  const bool by_gpu = neighbour() && touch_gpus(pairs) && options.may_be_p2p();
  return checks_->move_and_check(
      opcode, pairs, options, by_gpu,
      [&](const TransferOptions& moving) { return transfer(opcode, pairs, moving); });
}

Transferring Peer::move(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                        const TransferOptions& options) {
  if (!is_checked(options)) return transfer(opcode, pairs, options);
  return options.briefly ? nullptr : checked(opcode, pairs, options);
}

Transferring Peer::write(std::span<const Pair> pairs, const TransferOptions& options) {
  return move(IBV_WR_RDMA_WRITE, pairs, options);
}

Transferring Peer::read(std::span<const Pair> pairs, const TransferOptions& options) {
  return move(IBV_WR_RDMA_READ, pairs, options);
}

Transferring Peer::notify(const Notification& notification) {
  return write({}, {.notify = notification, .require = {}, .timeout = {}});
}

// --- without a Transfer, for callers that do not need one ---

bool Peer::needs_no_transfer(const TransferOptions& options) const {
  return options.may_be_p2p() && !is_checked(options) && !trace::records() &&
         trace::tool() == nullptr;
}

Transferring Peer::put(const Pair& pair, const TransferOptions& options) {
  check_call(options);
  const bool is_short = needs_no_transfer(options) && !touch_gpus({&pair, 1});
  if (is_short && local_->copy_at_once(IBV_WR_RDMA_WRITE, pair, options, nullptr)) return nullptr;
  return write({&pair, 1}, options);
}

bool Peer::put(const Parts& parts, const RemoteMemory& there, const Notification& notification) {
  const TransferOptions options{.notify = notification, .require = {}, .timeout = {}};
  check_call(options);
  return needs_no_transfer(options) && local_->put_at_once(parts, there, options);
}

Transferring Peer::put(const Notification& notification) {
  const TransferOptions options{.notify = notification, .require = {}, .timeout = {}};
  check_call(options);
  if (needs_no_transfer(options) && local_->notify_at_once(options, nullptr)) return nullptr;
  return write({}, options);
}

// --- lists of pages: copied directly from the indices, by devices as pairs ---

Transferring Peer::write_pages(const Pages& pages, const TransferOptions& options) {
  return transfer_pages(IBV_WR_RDMA_WRITE, pages, options);
}

Transferring Peer::read_pages(const Pages& pages, const TransferOptions& options) {
  return transfer_pages(IBV_WR_RDMA_READ, pages, options);
}

Transferring Peer::transfer_pages(ibv_wr_opcode opcode, const Pages& pages,
                                  const TransferOptions& options) {
  check_call(options);
  state_->check_rights({pages.local, pages.remote}, needed_by(opcode));
  pages.check(opcode == IBV_WR_RDMA_WRITE);
  if (pages.nbytes() == 0) return move(opcode, {}, options);
  if (!is_checked(options)) return move_pages(opcode, pages, options);
  const Pair whole{pages.local, pages.remote};
  const bool by_gpu = neighbour() && touch_gpus({&whole, 1}) && options.may_be_p2p();
  return checks_->move_and_check(
      opcode, PagePairs(pages).pairs, options, by_gpu,
      [&](const TransferOptions& moving) { return move_pages(opcode, pages, moving); });
}

Transferring Peer::move_pages(ibv_wr_opcode opcode, const Pages& pages,
                              const TransferOptions& options) {
  if (options.may_be_p2p()) {
    const Pair whole{pages.local, pages.remote};
    std::string reason;
    auto copying = touch_gpus({&whole, 1}) ? gpu_->copy_pages(opcode, pages, options, reason)
                                           : local_->copy_pages(opcode, pages, options, reason);
    if (copying) return copying;
    check_not_insisted(options, reason);
  }
  return transfer_by_devices(opcode, PagePairs(pages).pairs, options);
}

// --- atomics ---

Transferring Peer::atomic(ibv_wr_opcode opcode, const RemoteMemory& word,
                          const DevicePath::Operands& operands, bool for_kernel) {
  state_->check_alive();
  devices_->check_word(word);
  const Deadline until = state_->deadline({});
  if (!for_kernel) {
    local_->wait_for_copies(until);
    staged_->wait(until);
  }
  return devices_->atomic(opcode, word, operands, until);
}

Transferring Peer::fetch_add(const RemoteMemory& word, std::uint64_t value, bool for_kernel) {
  return atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, word, {.add = value, .swap = 0}, for_kernel);
}

Transferring Peer::compare_swap(const RemoteMemory& word, std::uint64_t expected,
                                std::uint64_t desired, bool for_kernel) {
  return atomic(IBV_WR_ATOMIC_CMP_AND_SWP, word, {.add = expected, .swap = desired}, for_kernel);
}

// --- for kernels ---

void Peer::check_for_kernels(const Pair& pair) const {
  state_->check_alive();
  state_->check_ends(pair);
  check_one_range(pair.first->layout(), "local");
  check_one_range(pair.second->layout, "remote");
}

KernelReach Peer::reach_for_kernels(const Memory& local, const RemoteMemory& remote,
                                    Hearers hearers, const std::optional<double>& timeout) const {
  const Pair pair{&local, &remote};
  check_for_kernels(pair);
  return gpu_->reach_for_kernels(pair, hearers, timeout.value_or(host_->default_timeout));
}

EntryReach Peer::reach_for_entries(const Memory& local, const RemoteMemory& remote) const {
  const Pair pair{&local, &remote};
  check_for_kernels(pair);
  return devices_->reach_for_entries(pair);
}

DirectReach Peer::reach_directly(const Memory& local, const RemoteMemory& remote,
                                 const Deadline& deadline) {
  return direct_links_->open(reach_for_entries(local, remote), remote, deadline);
}

}  // namespace zerohop::engine
