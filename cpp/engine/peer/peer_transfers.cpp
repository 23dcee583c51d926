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

}  // namespace

void Peer::check_call(const TransferOptions& options) const {
  state_->check_alive();
  if (options.notify) check_notification(*options.notify);
  check_kind(options.require);
}

// A path that takes the call cannot carry it out: throws if only that path is allowed. Logs each
// reason once.
void Peer::note_refusal(const TransferOptions& options, const std::string& reason) {
  state_->check_alive();
  if (!options.require.empty()) {
    throw RouteUnavailable("route 'p2p' is not available, because " + reason +
                           "; or leave require= out for the routes of devices: host, gpudirect, "
                           "staged");
  }
  if (streams_->is_captured(options)) {
    throw RouteUnavailable("this call cannot become part of a CUDA graph, because " + reason +
                           ": make it outside the capture");
  }
  if (!refusals_.add(reason)) return;
  log(Level::warning, "route", [&] {
    return "a transfer with peer '" + state_->name() +
           "' is left to a device instead of p2p, because " + reason;
  });
}

TransferPtr Peer::transfer(const Call& call) {
  if (call.options.briefly && !(brief_ && is_brief(call.pairs))) return nullptr;
  check_call(call.options);
  try {
    for (Path* path : paths_) {
      if (!path->takes(call)) continue;
      std::string why_not;
      if (auto begun = path->begin(call, why_not)) return begun;
      if (call.options.briefly) return nullptr;
      note_refusal(call.options, why_not);
    }
    throw RouteUnavailable("no path to peer '" + state_->name() + "' takes this transfer");
  } catch (const std::invalid_argument&) {
    name_wrong_pair(call);
    throw;
  } catch (const RegistrationError&) {
    name_wrong_pair(call);
    throw;
  }
}

// Throws the error of the first invalid pair again, with its index.
void Peer::name_wrong_pair(const Call& call) const {
  const auto pairs = call.pairs;
  for (std::size_t i = 0; i < pairs.size() && pairs.size() > 1; ++i) {
    const std::string which = "pair " + std::to_string(i) + ": ";
    try {
      state_->check(pairs[i], call.needed());
      (void)pairs[i].local->registration();
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(which + error.what());
    } catch (const RegistrationError& error) {
      throw RegistrationError(which + error.what(), error.code());
    }
  }
}

// --- checked transfers: see Checks ---

TransferPtr Peer::checked(const Call& call) {
  const TransferOptions& options = call.options;
  check_call(options);
  if (streams_->is_captured(options)) {
    throw RouteUnavailable(
        "this call cannot become part of a CUDA graph, because with integrity=1 the CPU compares "
        "what was transferred: make it outside the capture, or leave integrity out");
  }
  if (call.pairs.empty()) {
    if (!checks_->pending()) return transfer(call);
    return checks_->notify_behind(options, devices_->route(Routes::Kind::host, 1));
  }
  const bool by_gpu = neighbour() && call.on_gpus && options.may_be_p2p();
  std::optional<PagePairs> parts;
  if (call.pages != nullptr) parts.emplace(*call.pages);
  return checks_->move_and_check(call.opcode, parts ? parts->pairs : call.pairs, options, by_gpu,
                                 [&](const TransferOptions& moving) {
                                   return transfer({call.opcode, call.pairs, moving, call.pages});
                                 });
}

TransferPtr Peer::move(const Call& call) {
  if (!is_checked(call.options)) return transfer(call);
  return call.options.briefly ? nullptr : checked(call);
}

TransferPtr Peer::write(std::span<const Pair> pairs, const TransferOptions& options) {
  return move({IBV_WR_RDMA_WRITE, pairs, options});
}

TransferPtr Peer::read(std::span<const Pair> pairs, const TransferOptions& options) {
  return move({IBV_WR_RDMA_READ, pairs, options});
}

TransferPtr Peer::notify(const Notification& notification) {
  return write({}, {.notify = notification, .require = {}, .timeout = {}});
}

// --- without a Transfer, for callers that do not need one ---

bool Peer::needs_no_transfer(const TransferOptions& options) const {
  return options.may_be_p2p() && !is_checked(options) && !trace::records() &&
         trace::tool() == nullptr;
}

TransferPtr Peer::put(const Pair& pair, const TransferOptions& options) {
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

TransferPtr Peer::put(const Notification& notification) {
  const TransferOptions options{.notify = notification, .require = {}, .timeout = {}};
  check_call(options);
  if (needs_no_transfer(options) && local_->notify_at_once(options, nullptr)) return nullptr;
  return write({}, options);
}

// --- lists of pages: copied directly from the indices, by devices as pairs ---

TransferPtr Peer::write_pages(const Pages& pages, const TransferOptions& options) {
  return transfer_pages(IBV_WR_RDMA_WRITE, pages, options);
}

TransferPtr Peer::read_pages(const Pages& pages, const TransferOptions& options) {
  return transfer_pages(IBV_WR_RDMA_READ, pages, options);
}

TransferPtr Peer::transfer_pages(ibv_wr_opcode opcode, const Pages& pages,
                                 const TransferOptions& options) {
  check_call(options);
  const Pair whole{pages.local, pages.remote};
  state_->check_rights(whole, needed_by(opcode));
  pages.check(opcode == IBV_WR_RDMA_WRITE);
  if (pages.nbytes() == 0) return move({opcode, {}, options});
  return move({opcode, {&whole, 1}, options, &pages});
}

// --- atomics ---

TransferPtr Peer::atomic(ibv_wr_opcode opcode, const RemoteMemory& word,
                         const DevicePath::Operands& operands, bool for_kernel) {
  state_->check_alive();
  devices_->check_word(word);
  const Deadline until = state_->deadline({});
  if (!for_kernel) {
    pending_->wait_for_copies(until);
    staged_->wait(until);
  }
  return devices_->atomic(opcode, word, operands, until);
}

TransferPtr Peer::fetch_add(const RemoteMemory& word, std::uint64_t value, bool for_kernel) {
  return atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, word, {.add = value, .swap = 0}, for_kernel);
}

TransferPtr Peer::compare_swap(const RemoteMemory& word, std::uint64_t expected,
                               std::uint64_t desired, bool for_kernel) {
  return atomic(IBV_WR_ATOMIC_CMP_AND_SWP, word, {.add = expected, .swap = desired}, for_kernel);
}

}  // namespace zerohop::engine
