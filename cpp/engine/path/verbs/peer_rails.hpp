// The queue pairs with one Peer, one per rail: which of them work, and which carry work that must
// stay in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/path/peer_state.hpp"
#include "engine/path/pending_work.hpp"
#include "engine/path/transfer_options.hpp"
#include "engine/path/verbs/peer_rail.hpp"
#include "engine/path/verbs/rail_group.hpp"
#include "engine/rail.hpp"
#include "engine/settings.hpp"

namespace zerohop::engine {

class PeerRails {
 public:
  PeerRails(Rails rails, std::shared_ptr<const PeerState> state,
            std::shared_ptr<const PendingWork> pending)
      : devices_(std::move(rails)),
        state_(std::move(state)),
        pending_(std::move(pending)),
        group_(std::make_shared<RailGroup>(state_->name())) {}

  // on_broken: starts the repair of that rail's queue pair; it must only schedule it.
  void open(RailServices services, const std::function<void(RailIndex)>& on_broken);
  // After it returns, no memory of a transfer is accessed any more.
  void close(const PeerRail::Reason& reason);

  const Rails& devices() const noexcept { return devices_; }
  const std::shared_ptr<RailGroup>& group() const noexcept { return group_; }
  // Null: the rail's device was already gone when the Peer was made.
  const std::shared_ptr<PeerRail>& at(RailIndex rail) const noexcept { return rails_[rail]; }
  std::size_t count() const noexcept { return group_->rails(); }  // at both ends
  void set_count(std::size_t count, bool global_atomics);
  RailMask open_rails() const;  // those that are not closed
  // Since when its failed transfers may still arrive; since when no rail has worked.
  RailGroup::Since unsettled(RailIndex rail) const;
  RailGroup::Since dark() const;

  PeerRail& message_rail() const;
  // Atomics of different adapters are not atomic with each other, so all use one rail. Throws
  // RouteUnavailable while it does not work.
  PeerRail& atomics_rail() const;
  // Open rails that reach both sides of every pair.
  RailMask reach(std::span<const Pair> pairs) const;

  bool idle() const;
  struct Work {
    bool pending = false;  // jobs not done, or failed but possibly still arriving
    bool unseen = false;   // done here, but perhaps not visible to the peer yet
  };
  Work work() const;  // including staged transfers
  // Waits for pending work: fully if the call may take no device, otherwise briefly. False: it has
  // not ended.
  bool wait_for_work(const TransferOptions& options) const;

  struct Report {
    std::string device;
    std::string trouble;              // why it does not work; empty: it works
    const RailStats* stats;           // null: it never had a queue pair
    std::uint64_t registered_nbytes;  // for messages and atomics; 0: no queue pair
  };
  std::vector<Report> reports() const;
  std::vector<Settings> settings() const;

 private:
  PeerRail& any_rail() const;

  const Rails devices_;
  const std::shared_ptr<const PeerState> state_;
  const std::shared_ptr<const PendingWork> pending_;
  const std::shared_ptr<RailGroup> group_;
  std::shared_ptr<Poller> poller_;
  std::vector<std::shared_ptr<PeerRail>> rails_;
  bool global_atomics_ = false;
};

}  // namespace zerohop::engine
