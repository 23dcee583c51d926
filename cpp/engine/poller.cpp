#include "engine/poller.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace zerohop::engine {
namespace {

constexpr int kFirstDepth = 4096;  // completions: about a dozen Peers before the first resize
constexpr int kBatch = 16;         // completions taken from the device at once

}  // namespace

Poller::Poller(std::shared_ptr<rdma::Device> device, std::chrono::microseconds spin,
               Interrupt interrupt)
    : queue_(rdma::CompletionQueue::create(device,
                                           std::min(kFirstDepth, device->attributes().max_cqe))),
      spin_(spin),
      interrupt_(std::move(interrupt)) {}

void Poller::attach(std::uint32_t qp_number, std::shared_ptr<CompletionSink> sink, int entries) {
  const std::lock_guard lock(poll_mutex_);
  if (reserved_ + entries > queue_->depth()) {
    // Doubling keeps the number of resizes logarithmic in the number of Peers.
    queue_->resize(std::max(reserved_ + entries,
                            std::min(2 * queue_->depth(), queue_->device().attributes().max_cqe)));
  }
  sinks_.emplace(qp_number, std::move(sink));
  reserved_ += entries;
}

void Poller::detach(std::uint32_t qp_number, int entries) {
  std::shared_ptr<CompletionSink> last;  // dies after the lock is released
  const std::lock_guard lock(poll_mutex_);
  const auto found = sinks_.find(qp_number);
  if (found == sinks_.end()) return;
  last = std::move(found->second);
  sinks_.erase(found);
  reserved_ -= entries;
}

bool Poller::poll() noexcept {
  const std::unique_lock lock(poll_mutex_, std::try_to_lock);
  return lock.owns_lock() && drain();
}

void Poller::flush() noexcept {
  const std::lock_guard lock(poll_mutex_);
  drain();
}

bool Poller::drain() noexcept {
  std::array<ibv_wc, kBatch> completions;
  bool found = false;
  for (;;) {
    const int count = queue_->poll(completions);
    for (int i = 0; i < count; ++i) deliver(completions[static_cast<std::size_t>(i)]);
    found = found || count > 0;
    if (count < kBatch) return found;
  }
}

void Poller::deliver(const ibv_wc& completion) noexcept {
  // A queue pair that was replaced or closed leaves completions behind: they belong to nobody.
  const auto found = sinks_.find(completion.qp_num);
  if (found != sinks_.end()) found->second->on_completion(completion);
}

void Poller::wake() noexcept {
  // Pairs with sleep(). A read-modify-write, not a load: it comes either after the sleeper counted
  // itself, and is seen here, or before, and then the sleeper sees the change made by the caller.
  if (sleepers_.fetch_add(0) == 0) return;
  const std::lock_guard lock(sleep_mutex_);
  wakeups_.fetch_add(1);
  wakeup_.notify_all();
}

std::chrono::milliseconds Poller::serve() noexcept {
  queue_->consume_events();
  const std::uint64_t polls = polls_.load(std::memory_order_relaxed);
  if (polls != polls_seen_ && sleepers_.load() == 0) {
    polls_seen_ = polls;
    return kWhilePolled;
  }
  poll();
  if (queue_->arm() != 0) return kWhilePolled;
  flush();  // what completed before the arming raises no event, and may be another thread's to see
  return kForever;
}

}  // namespace zerohop::engine
