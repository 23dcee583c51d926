// One-sided operations of RDMA devices for a Peer: writes, reads, atomics, notifications.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/path/path.hpp"
#include "engine/path/pending_work.hpp"
#include "engine/path/program_order.hpp"
#include "engine/path/routes.hpp"
#include "engine/path/verbs/entry_reach.hpp"
#include "engine/path/verbs/peer_rails.hpp"
#include "engine/path/verbs/striping.hpp"

namespace zerohop::engine {

class DevicePath : public Path {
 public:
  struct Services {
    std::shared_ptr<const PeerState> state;
    std::shared_ptr<PeerRails> rails;
    std::shared_ptr<Poller> poller;
    std::shared_ptr<PendingWork> pending;
    std::shared_ptr<CallStream> streams;
    std::shared_ptr<RouteBook> book;
    std::uint64_t stripe_bytes = 0;  // larger transfers use several rails
  };
  explicit DevicePath(Services services)
      : s_(std::move(services)), routes_(s_.rails->devices(), s_.book) {}

  bool takes(const Call&) const override { return true; }
  // Posting to an adapter does not wait. The software HCA may be in the middle of a large frame.
  bool brief() const noexcept override { return !s_.rails->devices().front()->software(); }
  TransferPtr begin(const Call& call, std::string& why_not) override;
  std::shared_ptr<const Route> route(const Pair& pair, std::string& why_not) const override;
  bool idle() const override { return s_.rails->idle(); }
  void end() noexcept override;

  struct Move {
    std::uint64_t nbytes = 0;
    Routes::Kind kind = Routes::Kind::host;
    std::optional<Notification> notification{};
    bool for_kernel = false;
    bool visible = false;
  };
  // For all pairs. Throws if the route is not of the `required` kind.
  Move plan(const Call& call) const;
  // Waits for the stream and the copies that a call must follow. Returns its deadline.
  Deadline wait_for_turn(const TransferOptions& options) const;
  // How long it may wait for room of a full queue, of the time until its deadline.
  static Deadline room_until(const TransferOptions& options, const Deadline& until) {
    return options.room == Room::wait ? until : Deadline::after(Deadline::Seconds{0});
  }
  Routes::Kind kind(const Pair& pair) const;
  Routes::RoutePtr route(Routes::Kind kind, RailMask rails) const {
    return routes_.over(kind, rails);
  }
  // Rails that a transfer of that pair would use.
  RailMask rails_of(const Pair& pair, Routes::Kind kind) const;

  // The caller waits for earlier CPU copies, GPU copies and staged transfers.
  TransferPtr post(ibv_wr_opcode opcode, std::span<const Pair> pairs, const Move& move,
                   const Deadline& until);

  struct Operands {
    std::uint64_t add;  // or the expected value
    std::uint64_t swap;
  };
  // Call it before atomic(), and before any wait.
  void check_word(const RemoteMemory& word) const;
  TransferPtr atomic(ibv_wr_opcode opcode, const RemoteMemory& word, const Operands& operands,
                     const Deadline& until);

  // For entries written by kernels and executed by post() and others.
  EntryReach reach_for_entries(const Pair& pair) const;

 private:
  struct Share {
    RailIndex rail;
    Job job;
  };
  using Shares = std::vector<Share>;

  TransferPtr begin_at_once(const Call& call);
  Striping stripe(std::span<const Pair> pairs, std::uint64_t nbytes) const;
  Piece make_piece(const Pair& pair, RemoteAccess needed, RailIndex rail, Transfer& transfer) const;
  Job make_job(ibv_wr_opcode opcode, std::span<const Pair> pairs, RailIndex rail,
               const TransferPtr& transfer) const;
  Job make_share(ibv_wr_opcode opcode, std::span<const Pair> pairs, const Stripe& stripe,
                 const TransferPtr& transfer) const;
  TransferPtr post_striped(ibv_wr_opcode opcode, std::span<const Pair> pairs, const Move& move,
                           const Deadline& until);
  bool submit(Shares& shares, RailMask planned, const std::optional<Message>& message,
              ibv_wr_opcode opcode, const TransferPtr& transfer);
  bool has_atomics(const RemoteMemory& remote) const;

  const Services s_;
  const Routes routes_;
};

}  // namespace zerohop::engine
