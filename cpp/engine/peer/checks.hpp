// Transfers of a Peer that are checked end to end (integrity=1), and the checksum requests of the
// peer for its own.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>

#include "engine/integrity/check_line.hpp"
#include "engine/integrity/checker.hpp"
#include "engine/path/call.hpp"
#include "engine/path/peer_state.hpp"
#include "engine/path/program_order.hpp"
#include "engine/stats/route.hpp"

namespace zerohop::engine {

class Checks : public std::enable_shared_from_this<Checks> {
 public:
  struct Services {
    std::shared_ptr<const PeerState> state;
    std::shared_ptr<Poller> poller;
    std::shared_ptr<Checker> checker;
    std::shared_ptr<CallStream> streams;
    std::function<void(ControlMessage)> tell;
    // Puts a notification into the peer's board, after everything before it is done.
    std::function<TransferPtr(const TransferOptions&)> notify;
  };
  explicit Checks(Services services) : s_(std::move(services)) {}

  // Checks transfers from here on. Call it before the Peer is alive.
  void begin();
  void end();  // the Peer is lost
  bool on() const noexcept { return line_ != nullptr; }
  bool pending() const { return line_ && line_->pending(); }

  // Runs `move` and compares its data; returns the checked transfer. by_gpu: a GPU may copy, in
  // stream order.
  using Mover = std::function<TransferPtr(const TransferOptions&)>;
  TransferPtr move_and_check(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                             const TransferOptions& options, bool by_gpu, const Mover& move);
  // A notification after all transfers still being compared.
  TransferPtr notify_behind(const TransferOptions& options, std::shared_ptr<const Route> route);

  // --- for the progress thread ---
  // Throws ProtocolError if the peer sends too many requests at once, or too many for memory that
  // is not its own.
  void on_sum_up(const SumUp& asked);
  void on_summed_up(const SummedUp& answer);

 private:
  CheckLine::Notify notifier(const TransferOptions& options);

  const Services s_;
  std::shared_ptr<CheckLine> line_;   // null: transfers are not checked
  std::atomic<int> asked_sums_{0};    // outstanding requests of the peer
  std::atomic<int> refused_sums_{0};  // of all its requests, those for memory without a right
};

}  // namespace zerohop::engine
