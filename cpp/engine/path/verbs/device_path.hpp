// One-sided operations of RDMA devices for a Peer: writes, reads, atomics, notifications.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/path/pair.hpp"
#include "engine/path/routes.hpp"
#include "engine/path/transfer_options.hpp"
#include "engine/path/verbs/entry_reach.hpp"
#include "engine/path/verbs/peer_rails.hpp"
#include "engine/path/verbs/striping.hpp"

namespace zerohop::engine {

// Any thread. Throws PeerLost, RegistrationError, RouteUnavailable, std::invalid_argument,
// TransferTimeout.
class DevicePath {
 public:
  // stripe_bytes: larger transfers use several rails.
  DevicePath(std::shared_ptr<const PeerState> state, std::shared_ptr<PeerRails> rails,
             std::shared_ptr<Poller> poller, std::shared_ptr<RouteBook> book,
             std::uint64_t stripe_bytes)
      : state_(std::move(state)),
        rails_(std::move(rails)),
        poller_(std::move(poller)),
        routes_(rails_->devices(), std::move(book)),
        stripe_bytes_(stripe_bytes) {}

  struct Move {
    std::uint64_t nbytes = 0;
    Routes::Kind kind = Routes::Kind::host;
    std::optional<Notification> notification{};
    bool for_kernel = false;
    bool visible = false;
  };
  // For all pairs. Throws if the route is not of the `required` kind.
  Move plan(std::span<const Pair> pairs, const TransferOptions& options) const;
  Routes::Kind kind(const Pair& pair) const;
  Routes::RoutePtr route(Routes::Kind kind, RailMask rails) const {
    return routes_.over(kind, rails);
  }
  // Rails that a transfer of that pair would use.
  RailMask rails_of(const Pair& pair, Routes::Kind kind) const;

  // The caller waits for earlier CPU copies, GPU copies and staged transfers.
  Transferring post(ibv_wr_opcode opcode, std::span<const Pair> pairs, const Move& move,
                    const Deadline& until);
  // Posting to an adapter does not wait. The software HCA may be in the middle of a large frame.
  bool posts_briefly() const noexcept { return !rails_->devices().front()->software(); }
  // The short way for one range of host memory, on one rail; null: not possible.
  Transferring post_at_once(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                            const TransferOptions& options);

  struct Operands {
    std::uint64_t add;  // or the expected value
    std::uint64_t swap;
  };
  // Call it before atomic(), and before any wait.
  void check_word(const RemoteMemory& word) const;
  Transferring atomic(ibv_wr_opcode opcode, const RemoteMemory& word, const Operands& operands,
                      const Deadline& until);

  // For entries written by kernels and executed by post() and others.
  EntryReach reach_for_entries(const Pair& pair) const;
  // Adds to the route why it was chosen, and why not p2p (not_p2p).
  Route explain(const Pair& pair, Route route, const std::string& not_p2p) const;

 private:
  struct Share {
    RailIndex rail;
    Job job;
  };
  using Shares = std::vector<Share>;

  Striping stripe(std::span<const Pair> pairs, std::uint64_t nbytes) const;
  Piece make_piece(const Pair& pair, RemoteAccess needed, RailIndex rail, Transfer& transfer) const;
  Job make_job(ibv_wr_opcode opcode, std::span<const Pair> pairs, RailIndex rail,
               const Transferring& transfer) const;
  Job make_share(ibv_wr_opcode opcode, std::span<const Pair> pairs, const Stripe& stripe,
                 const Transferring& transfer) const;
  Transferring post_striped(ibv_wr_opcode opcode, std::span<const Pair> pairs, const Move& move,
                            const Deadline& until);
  bool submit(Shares& shares, RailMask planned, const std::optional<Message>& message,
              ibv_wr_opcode opcode, const Transferring& transfer);
  bool has_atomics(const RemoteMemory& remote) const;

  const std::shared_ptr<const PeerState> state_;
  const std::shared_ptr<PeerRails> rails_;
  const std::shared_ptr<Poller> poller_;
  const Routes routes_;
  const std::uint64_t stripe_bytes_;
};

}  // namespace zerohop::engine
