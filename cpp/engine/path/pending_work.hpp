// What has begun with one peer and has not ended, apart from the work of its queue pairs (see
// PeerRails::work). A path waits here for work of the other paths that a call must not overtake.
#pragma once

#include <atomic>
#include <memory>

#include "base/deadline.hpp"
#include "engine/path/peer_state.hpp"
#include "engine/wait/poller.hpp"

namespace zerohop::engine {

class PendingWork {
 public:
  PendingWork(std::shared_ptr<const PeerState> state, std::shared_ptr<Poller> poller)
      : state_(std::move(state)), poller_(std::move(poller)) {}

  bool any() const noexcept { return host_copies > 0 || gpu_copies > 0 || staged > 0; }
  // Both throw TransferTimeout; the second throws PeerLost too.
  void wait_for_host_copies(const Deadline& until) const;
  void wait_for_copies(const Deadline& until) const;  // including those of GPUs

  // Each is counted by its path. Below 0 for a moment: work that ended before it was counted.
  std::atomic<int> host_copies{0};  // queued for the thread that copies
  std::atomic<int> gpu_copies{0};
  std::atomic<int> staged{0};

 private:
  const std::shared_ptr<const PeerState> state_;
  const std::shared_ptr<Poller> poller_;
};

}  // namespace zerohop::engine
