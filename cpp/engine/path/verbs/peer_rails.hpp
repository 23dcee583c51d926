// The queue pairs with one Peer, one on each rail: which of them serve, and which carry what has to
// stay in one order.
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
#include "engine/path/verbs/path_group.hpp"
#include "engine/path/verbs/verbs_path.hpp"
#include "engine/rail.hpp"
#include "engine/settings.hpp"

namespace zerohop::engine {

class PeerRails {
 public:
  PeerRails(Rails rails, std::shared_ptr<const PeerState> state)
      : rails_(std::move(rails)),
        state_(std::move(state)),
        group_(std::make_shared<PathGroup>(state_->name())) {}

  // on_broken: has the queue pair of that rail replaced; it only passes the word on.
  void open(PathServices services, const std::function<void(RailIndex)>& on_broken);
  // No memory of a transfer is touched any more when this returns.
  void close(const VerbsPath::Reason& reason);

  const Rails& devices() const noexcept { return rails_; }
  const std::shared_ptr<PathGroup>& group() const noexcept { return group_; }
  // Null: the rail's device was gone when the Peer was made.
  const std::shared_ptr<VerbsPath>& path(RailIndex rail) const noexcept { return paths_[rail]; }
  std::size_t count() const noexcept { return group_->rails(); }  // that both ends have
  void set_count(std::size_t count, bool global_atomics);
  RailMask open_rails() const;  // whose paths are not closed
  // Since when its failed transfers may still arrive, and none of the rails serves.
  PathGroup::Since unsettled(RailIndex rail) const;
  PathGroup::Since dark() const;

  VerbsPath& message_path() const;
  // Atomics of different adapters are not atomic with each other, so all take one rail. Throws
  // RouteUnavailable while it does not serve.
  VerbsPath& atomics_path() const;
  // Open rails over which both sides of every pair can be reached.
  RailMask reach(std::span<const Pair> pairs) const;

  bool idle() const;
  struct Work {
    bool pending = false;  // jobs that are not done, or failed but may still arrive
    bool unseen = false;   // what the peer may not see yet, though it is done here
  };
  Work work(bool others) const;  // others: the caller knows of more that is pending

  struct Report {
    std::string device;
    std::string trouble;              // why it does not serve; empty: it does
    const PathStats* stats;           // null: it never had a queue pair
    std::uint64_t registered_nbytes;  // for messages and atomics; 0: it has no queue pair
  };
  std::vector<Report> reports() const;
  std::vector<Settings> settings() const;

 private:
  VerbsPath& any_path() const;

  const Rails rails_;
  const std::shared_ptr<const PeerState> state_;
  const std::shared_ptr<PathGroup> group_;
  std::shared_ptr<Poller> poller_;
  std::vector<std::shared_ptr<VerbsPath>> paths_;  // by rail
  bool global_atomics_ = false;
};

}  // namespace zerohop::engine
