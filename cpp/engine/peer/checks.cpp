#include "engine/peer/checks.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "engine/stream/program_streams.hpp"

namespace zerohop::engine {
namespace {

constexpr int kMostAskedSums = 64;  // outstanding requests of a peer: more than a correct one sends
// Per connection. A correct peer is refused only for memory closed while it writes to it, a mistake
// of the programs. A peer that guesses keys gets this many guesses plus the outstanding ones.
constexpr int kMostRefusedSums = 64;

// Before any data moves. Assumes that the peer runs the same build.
void check_summable(const Memory& local, const RemoteMemory& remote) {
  if (!local.on_host()) Checksums::check(local.layout(), kMostSummedAtOnce);
  if (remote.device != "cpu") Checksums::check(remote.layout, kMostSummedAtOnce);
}

}  // namespace

void Checks::begin() {
  line_ = std::make_shared<CheckLine>(
      CheckLine::Services{.poller = s_.poller,
                          .checker = s_.checker,
                          .peer = s_.state->name(),
                          .ask = [tell = s_.tell](SumUp asked) { tell(std::move(asked)); },
                          .why_lost = [state = s_.state] { return state->lost_text(); }});
}

void Checks::end() {
  if (line_) line_->end();
}

void Checks::on_sum_up(const SumUp& asked) {
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
    s_.checker->put([self = shared_from_this(), asked] {
      if (self->s_.state->alive()) {
        SummedUp answer = self->s_.checker->answer(asked);
        if (answer.status == IBV_WC_REM_ACCESS_ERR) self->refused_sums_.fetch_add(1);
        self->s_.tell(std::move(answer));
      }
      self->asked_sums_.fetch_sub(1);
    });
  } catch (const Error& error) {  // no thread can be started, or the Endpoint is being closed
    asked_sums_.fetch_sub(1);
    s_.tell(SummedUp{.request = asked.request,
                     .sums = {},
                     .status = IBV_WC_REM_OP_ERR,
                     .refusal = std::string(error.what()).substr(0, kMaxNameBytes)});
  }
}

void Checks::on_summed_up(const SummedUp& answer) {
  if (!line_) throw ProtocolError("it sent checksums that were not requested");
  line_->on_answer(answer);
}

TransferPtr Checks::notify_behind(const TransferOptions& options,
                                  std::shared_ptr<const Route> route) {
  return line_->put({.notify = notifier(options)}, std::move(route));
}

// A GPU's copy takes its turn in the stream, which then stops until all data is compared, because
// later work of the stream may change the arrays. On the other routes the call waits for the
// stream.
TransferPtr Checks::move_and_check(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                   const TransferOptions& options, bool by_gpu, const Mover& move) {
  for (const auto& [local, remote] : pairs) check_summable(*local, *remote);
  TransferOptions moving = options;
  moving.notify.reset();
  moving.visible = true;
  moving.compared = true;
  std::unique_ptr<StreamHold> hold;
  if (options.stream && by_gpu) hold = s_.streams->streams().hold(*options.stream);
  if (!hold) {
    s_.streams->wait(moving, s_.state->deadline(options.timeout));
    moving.stream.reset();
  }
  const TransferPtr moved = move(moving);
  const bool in_stream = hold && moved->mark();  // otherwise it took another route
  CheckLine::Call call{.verb = opcode == IBV_WR_RDMA_WRITE ? "write" : "read",
                       .moved = moved,
                       .pairs = {},
                       .notify = notifier(options),
                       .stream = in_stream ? options.stream : std::nullopt};
  call.pairs.reserve(pairs.size());
  for (const auto& [local, remote] : pairs) {
    const std::uint64_t nbytes = local->layout().nbytes();
    if (nbytes == 0) continue;
    call.pairs.push_back({{local->layout(), 0, nbytes}, local->registration(), *remote});
  }
  auto transfer = line_->put(std::move(call), nullptr);
  if (in_stream) hold->until(transfer);
  return transfer;
}

CheckLine::Notify Checks::notifier(const TransferOptions& options) {
  if (!options.notify) return nullptr;
  return [notify = s_.notify, notification = *options.notify] {
    return notify({.notify = notification,
                   .require = {},
                   .timeout = {},
                   .room = Room::take,  // others need this thread
                   .in_turn = true});
  };
}

}  // namespace zerohop::engine
