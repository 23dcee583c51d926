// Transfers that are checked end to end (integrity=1), and what the peer asks for its own.
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.hpp"
#include "base/error.hpp"
#include "engine/peer/peer.hpp"
#include "engine/stream/program_streams.hpp"

namespace zerohop::engine {
namespace {

constexpr int kMostAskedSums = 64;  // questions of a peer under way: more than a correct one asks
// In the life of a connection. A correct peer is refused what is closed while it writes to it,
// which is a mistake of the programs. One that guesses keys has so many guesses, and those under
// way.
constexpr int kMostRefusedSums = 64;

// Of a whole message, of which the parts have theirs.
Seal seal_of_sums(const std::vector<std::uint32_t>& sums) {
  return crc32c(std::as_bytes(std::span(sums)));
}

// A recv whose message is there.
struct Received {
  std::shared_ptr<Transfer> moved;
  std::shared_ptr<std::optional<Seal>> seal;  // that came with it
  Layout into;
  std::shared_ptr<const Pinned> pinned;
  std::string peer;
};

// Before anything moves. The peer's build is taken to be as this one.
void check_summable(const Memory& local, const RemoteMemory& remote) {
  if (!local.on_host()) Checksums::check(local.layout(), kMostSummedAtOnce);
  if (remote.device != "cpu") Checksums::check(remote.layout, kMostSummedAtOnce);
}

// In a task of the Checker.
std::optional<Failure> check_seal(Checker& checker, const Received& received) {
  const Transfer& moved = *received.moved;
  const std::optional<Seal>& seal = *received.seal;
  if (const Failure* failure = moved.failure()) return *failure;
  Failure failure{.kind = Failure::Kind::integrity, .message = {}};
  failure.nbytes = moved.result();
  try {
    std::vector<std::uint32_t> sums;
    if (failure.nbytes > 0) {
      sums = checker.sums_of({receive_part(received.into, failure.nbytes), 0, failure.nbytes},
                             received.pinned->device.get());
    }
    const Seal here = seal_of_sums(sums);
    if (here == seal) return std::nullopt;
    failure.message =
        "recv from peer '" + received.peer + "' by " + moved.route().kind + " (" +
        moved.route().device + ") brought other bytes than were sent: the " +
        std::to_string(failure.nbytes) + " bytes have checksum " + checksum_text(here) +
        " here and " + (seal ? checksum_text(*seal) : "none") +
        " there: have them sent again, leave both arrays alone until the Transfers are done, and "
        "have `zerohop verify` try the memory and the way if it happens again";
  } catch (const std::exception&) {
    failure = Failure::of_current_exception();
  }
  return std::move(failure).with_effect(Effect::all);
}

}  // namespace

void Peer::check_transfers() {
  check_line_ = std::make_shared<CheckLine>(
      CheckLine::Services{.poller = poller_,
                          .checker = host_.checker,
                          .peer = identity_.name,
                          .ask =
                              [weak = weak_from_this()](SumUp asked) {
                                if (const auto self = weak.lock())
                                  self->host_.tell(self, std::move(asked));
                              },
                          .why_lost = [weak = weak_from_this()]() -> std::string {
                            const auto self = weak.lock();
                            if (!self) return "the peer is lost";
                            const std::lock_guard lock(self->mutex_);
                            return self->lost_reason_;
                          }});
}

void Peer::on_sum_up(const SumUp& asked) {
  if (asked_sums_.fetch_add(1) >= kMostAskedSums) {
    asked_sums_.fetch_sub(1);
    throw ProtocolError("it asks for more checksums at once than a correct peer does");
  }
  if (refused_sums_.load() >= kMostRefusedSums) {
    asked_sums_.fetch_sub(1);
    throw ProtocolError("it has asked " + std::to_string(kMostRefusedSums) +
                        " times for checksums of memory that is closed, or was never given to it: "
                        "keep memory open until the transfers to and from it are done");
  }
  try {
    host_.checker->put([self = shared_from_this(), asked] {
      if (self->alive()) {
        SummedUp answer = self->host_.checker->answer(asked);
        if (answer.status == IBV_WC_REM_ACCESS_ERR) self->refused_sums_.fetch_add(1);
        self->host_.tell(self, std::move(answer));
      }
      self->asked_sums_.fetch_sub(1);
    });
  } catch (const Error& error) {  // no thread can be started, or the Endpoint is being closed
    asked_sums_.fetch_sub(1);
    host_.tell(shared_from_this(),
               SummedUp{.request = asked.request,
                        .sums = {},
                        .status = IBV_WC_REM_OP_ERR,
                        .refusal = std::string(error.what()).substr(0, kMaxNameBytes)});
  }
}

void Peer::on_summed_up(const SummedUp& answer) {
  if (!check_line_) throw ProtocolError("it tells checksums that nobody asked for");
  check_line_->on_answer(answer);
}

Peer::Transferring Peer::checked(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                 const TransferOptions& options) {
  check_call(options);
  if (!pairs.empty()) {
    return move_and_check(opcode, pairs, options, [&](const TransferOptions& moving) {
      return transfer(opcode, pairs, moving);
    });
  }
  if (!check_line_->pending()) return transfer(opcode, pairs, options);
  return check_line_->put({.notify = notifier(options)}, routes_.over(Routes::Kind::host, 1));
}

// A GPU's copy takes its turn in the stream, which then stands until all is compared: what it is
// given later may change the arrays. On the other routes the call waits for the stream.
Peer::Transferring Peer::move_and_check(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                        const TransferOptions& options, const Mover& move) {
  for (const auto& [local, remote] : pairs) check_summable(*local, *remote);
  TransferOptions moving = options;
  moving.notify.reset();
  moving.visible = true;
  moving.compared = true;
  const bool may_take_turn = neighbour_ && touch_gpus(pairs) && options.may_be_p2p();
  std::unique_ptr<StreamHold> hold;
  if (options.stream && may_take_turn) hold = host_.streams->hold(*options.stream);
  if (!hold) {
    wait_for_stream(moving, deadline(options.timeout));
    moving.stream.reset();
  }
  const Transferring moved = move(moving);
  const bool in_stream = hold && moved->mark();  // else it went by another route
  CheckLine::Call call{.verb = opcode == IBV_WR_RDMA_WRITE ? "write" : "read",
                       .moved = moved,
                       .pairs = {},
                       .notify = notifier(options),
                       .stream = in_stream ? options.stream : std::nullopt};
  call.pairs.reserve(pairs.size());
  for (const auto& [local, remote] : pairs) {
    const std::uint64_t nbytes = local->layout().nbytes();
    if (nbytes == 0) continue;
    call.pairs.push_back({{local->layout(), 0, nbytes}, local->pinned(), *remote});
  }
  auto transfer = check_line_->put(std::move(call), nullptr);
  if (in_stream) hold->until(transfer);
  return transfer;
}

CheckLine::Notify Peer::notifier(const TransferOptions& options) {
  if (!options.notify) return nullptr;
  return [weak = weak_from_this(), notification = *options.notify] {
    const auto self = weak.lock();
    if (!self) throw PeerLost("the peer is lost");
    return self->transfer(IBV_WR_RDMA_WRITE, {},
                          {.notify = notification,
                           .require = {},
                           .timeout = {},
                           .room = Room::take,  // others need this thread
                           .in_turn = true});
  };
}

// --- send and recv: the checksum travels with the message, and the receiver compares ---

// Of a GPU's memory by the thread that makes checksums, which is waited for.
Seal Peer::seal_of(const Memory& memory, const Deadline& until) const {
  const SummedPart all{memory.layout(), 0, memory.layout().nbytes()};
  if (all.nbytes == 0) return seal_of_sums({});
  if (memory.on_host()) return seal_of_sums(Checksums(0).of(all, nullptr));
  struct Result {
    std::atomic<bool> done{false};
    Seal seal = 0;
    std::optional<Failure> failure;
  };
  const auto result = std::make_shared<Result>();
  host_.checker->put(
      [result, all, pinned = memory.pinned(), poller = poller_, checker = host_.checker.get()] {
        try {
          result->seal = seal_of_sums(checker->sums_of(all, pinned->device.get()));
        } catch (const std::exception&) {
          result->failure = Failure::of_current_exception();
        }
        result->done.store(true);
        poller->wake();
      });
  if (!poller_->wait([&] { return result->done.load(); }, until)) {
    throw TransferTimeout("the checksum of memory on " + memory.device() +
                          " was not there in time, so nothing was sent: give a longer timeout");
  }
  if (result->failure) result->failure->raise();
  return result->seal;
}

void Peer::put_seal(Outgoing& outgoing) {
  if (!outgoing.seal) return;
  const auto bytes = std::as_bytes(std::span(&*outgoing.seal, 1));
  outgoing.payload.insert(outgoing.payload.end(), bytes.begin(), bytes.end());
  const bool eager = outgoing.message.kind == MessageKind::eager;
  outgoing.message.kind = eager ? MessageKind::sealed_eager : MessageKind::sealed_offer;
  outgoing.seal.reset();
}

Peer::Transferring Peer::receive_sealed(const Memory& into, std::uint32_t tag) {
  if (!into.on_host()) Checksums::check(into.layout(), into.layout().nbytes());
  Received received{.moved = nullptr,
                    .seal = std::make_shared<std::optional<Seal>>(),
                    .into = into.layout(),
                    .pinned = into.pinned(),
                    .peer = identity_.name};
  received.moved = post_receive(into, tag, received.seal);
  const Transferring moved = received.moved;
  auto transfer = std::make_shared<Transfer>(poller_, moved->nbytes(), moved->shared_route());
  transfer->note_begun();
  const auto compare = [transfer, received, checker = host_.checker.get()]() mutable noexcept {
    if (auto failure = check_seal(*checker, received)) transfer->fail(std::move(*failure));
    received.pinned.reset();  // before it is done: a waiter may count on its memory being released
    if (!received.moved->failed()) transfer->set_result(received.moved->result());
    transfer->drop();
  };
  moved->on_done([checker = host_.checker, transfer, moved, compare] {
    try {
      if (moved->failure() == nullptr) return checker->put(compare);
      transfer->fail(*moved->failure());  // nothing is to be compared: at once
    } catch (const std::exception&) {     // the Endpoint is being closed
      transfer->fail(Failure::of_current_exception().with_effect(Effect::all));
    }
    transfer->drop();
  });
  return transfer;
}

}  // namespace zerohop::engine
