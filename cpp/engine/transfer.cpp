#include "engine/transfer.hpp"

#include <utility>

namespace zerohop::engine {

std::uint64_t Transfer::result() const {
  if (failure_) failure_->raise();
  return result_;
}

void Transfer::fail(Failure failure) noexcept {
  if (!failed_.exchange(true)) failure_ = std::move(failure);
}

void Transfer::drop() noexcept {
  // acq_rel: what every dropper wrote (result, failure) is seen by the one that completes.
  if (holds_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  kept_.reset();  // before done: a waiter may count on its memory being released
  kept_more_.clear();
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(callbacks_mutex_);
    done_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
  }
  for (const auto& callback : callbacks) callback();
  poller_->wake();
}

void Transfer::on_done(std::function<void()> callback) {
  {
    const std::lock_guard lock(callbacks_mutex_);
    if (!done()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

}  // namespace zerohop::engine
