#include "engine/path/pending_work.hpp"

#include "base/error.hpp"

namespace zerohop::engine {

void PendingWork::wait_for_host_copies(const Deadline& until) const {
  if (host_copies <= 0) return;
  if (poller_->wait([this] { return host_copies <= 0; }, until)) return;
  throw TransferTimeout("earlier copies to or from peer '" + state_->name() +
                        "' did not end in time, so nothing was transferred: give a longer timeout");
}

void PendingWork::wait_for_copies(const Deadline& until) const {
  wait_for_host_copies(until);
  if (gpu_copies <= 0) return;
  const bool ended = poller_->wait([this] { return gpu_copies <= 0 || !state_->alive(); }, until);
  state_->check_alive();
  if (ended) return;
  throw TransferTimeout("GPU copies to or from peer '" + state_->name() +
                        "' did not end in time, so nothing was transferred: give a longer timeout");
}

}  // namespace zerohop::engine
