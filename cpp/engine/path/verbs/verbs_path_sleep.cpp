// A path whose queue pair was given back because nothing needed it.
#include <utility>

#include "engine/path/verbs/verbs_path.hpp"

namespace zerohop::engine {

bool VerbsPath::at_rest() const noexcept {
  return state_ == State::up && served_ && !put_off_ && jobs_.empty() && send_queue_.empty() &&
         offers_.empty() && undecided_.empty() && undecided_offers_.empty() && held_slots_.empty();
}

void VerbsPath::rouse() {
  drowsy_ = false;
  if (const auto put_off = std::exchange(put_off_, std::nullopt)) {
    break_down(put_off->cause, put_off->flushed_untouched, put_off->peer_may_be_gone);
    return report_if_drained();
  }
  if (state_ == State::up) advance_jobs();
}

std::unique_ptr<rdma::QueuePair> VerbsPath::fall_asleep() noexcept {
  try {
    last_settings_ = settings_now();
  } catch (const std::exception&) {  // the device goes; those of before, if any, are shown
  }
  state_ = State::asleep;
  drowsy_ = false;
  put_off_.reset();
  // The peer has taken them all, told or not.
  messages_taken_by_peer_ = messages_sent_;
  asked_.reset();
  stats_.sleeps.fetch_add(1, std::memory_order_relaxed);
  return std::move(queue_pair_);
}

void VerbsPath::let_go(std::unique_ptr<rdma::QueuePair> queue_pair) {
  services_.poller->detach(rail(), queue_pair->number(), completions());
  queue_pair.reset();  // from here on the device touches no memory of this path
  buffers_.reset();    // the progress thread alone uses them while there is no queue pair
  const std::lock_guard lock(group_->mutex);
  if (state_ == State::asleep && !jobs_.empty()) needs_renewal_();  // that came meanwhile
}

bool VerbsPath::asleep() const {
  const std::lock_guard lock(group_->mutex);
  return state_ == State::asleep;
}

}  // namespace zerohop::engine
