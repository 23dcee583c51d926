#include "engine/wait/poller.hpp"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace zerohop::engine {
namespace {

constexpr int kFirstDepth = 4096;  // completions: about a dozen Peers before the first resize
// Few drivers of iWARP devices can resize: for some 400 Peers, as many as the receives allow.
constexpr int kIwarpDepth = 131072;
constexpr int kBatch = 16;  // completions taken from the device at once

[[noreturn]] void throw_closed() { throw Error("this Endpoint is closed: make a new one"); }

}  // namespace

Poller::Poller(const Devices& devices, std::chrono::microseconds spin, Interrupt interrupt,
               Sleepers sleepers, Silent silent, std::shared_ptr<AsyncWaits> waits)
    : spin_(spin),
      interrupt_(std::move(interrupt)),
      sleepers_(std::move(sleepers)),
      silent_(std::move(silent)),
      waits_(std::move(waits)),
      shares_(devices.size()) {
  for (std::size_t rail = 0; rail < devices.size(); ++rail) {
    const int depth = std::min(devices[rail]->is_iwarp() ? kIwarpDepth : kFirstDepth,
                               devices[rail]->attributes().max_cqe);
    shares_[rail].queue = rdma::CompletionQueue::create(devices[rail], depth);
  }
}

std::shared_ptr<rdma::CompletionQueue> Poller::queue(RailIndex rail) const {
  const std::lock_guard lock(poll_mutex_);
  if (shares_.empty()) throw_closed();
  return shares_[rail].queue;
}

void Poller::attach(RailIndex rail, std::uint32_t qp_number, std::shared_ptr<CompletionSink> sink,
                    int entries) {
  const std::lock_guard lock(poll_mutex_);
  if (shares_.empty()) throw_closed();
  Share& share = shares_[rail];
  reserve(share, entries);
  share.sinks.emplace(qp_number, std::move(sink));
}

void Poller::attach_pool(RailIndex rail, std::shared_ptr<CompletionSink> pool, int entries) {
  const std::lock_guard lock(poll_mutex_);
  reserve(shares_[rail], entries);
  shares_[rail].pool = std::move(pool);
}

// With the lock held.
void Poller::reserve(Share& share, int entries) {
  if (share.reserved + entries > share.queue->depth()) {
    // Doubling keeps the number of resizes logarithmic in the number of Peers.
    const int most = share.queue->device().attributes().max_cqe;
    share.queue->resize(
        std::max(share.reserved + entries, std::min(2 * share.queue->depth(), most)));
  }
  share.reserved += entries;
}

void Poller::detach(RailIndex rail, std::uint32_t qp_number, int entries) {
  std::shared_ptr<CompletionSink> last;  // destroyed after the lock is released
  const std::lock_guard lock(poll_mutex_);
  if (shares_.empty()) return;
  Share& share = shares_[rail];
  const auto found = share.sinks.find(qp_number);
  if (found == share.sinks.end()) return;
  last = std::move(found->second);
  share.sinks.erase(found);
  share.reserved -= entries;
}

void Poller::retire(RailIndex rail) noexcept { shares_[rail].retired.store(true); }

void Poller::release() noexcept {
  std::vector<Share> last;  // destroyed after the lock is released
  const std::lock_guard lock(poll_mutex_);
  last.swap(shares_);
}

void Poller::add(const std::shared_ptr<Source>& source) {
  const std::lock_guard lock(sources_mutex_);
  std::erase_if(sources_, [&](const auto& one) {
    const auto known = one.lock();
    return !known || known == source;
  });
  sources_.push_back(source);
  has_sources_.store(true, std::memory_order_release);
}

// With what is perhaps the last reference to each, to be dropped without the lock.
void Poller::poll_sources() noexcept {
  if (!has_sources_.load(std::memory_order_acquire)) return;
  Living living;
  const std::unique_lock lock(sources_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (const auto& one : sources_) {
    auto source = one.lock();
    if (source && source->pending()) source->poll();
    living.push_back(std::move(source));
  }
}

void Poller::finish_sources(const Deadline& deadline) noexcept {
  while (sources_pending() && !deadline.passed()) {
    poll_sources();
    std::this_thread::sleep_for(kNap);
  }
}

// Also true while another thread polls them.
bool Poller::sources_pending() noexcept {
  if (!has_sources_.load(std::memory_order_acquire)) return false;
  Living living;
  const std::unique_lock lock(sources_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return true;
  return std::ranges::any_of(sources_, [&](const auto& one) {
    auto source = one.lock();
    const bool pending = source && source->pending();
    living.push_back(std::move(source));
    return pending;
  });
}

bool Poller::poll() noexcept {
  poll_sources();
  const std::unique_lock lock(poll_mutex_, std::try_to_lock);
  return lock.owns_lock() && drain();
}

void Poller::flush() noexcept {
  const std::lock_guard lock(poll_mutex_);
  drain();
}

bool Poller::drain() noexcept {
  bool found = false;
  for (Share& share : shares_) found = drain(share) || found;
  return found;
}

bool Poller::drain(Share& share) noexcept {
  if (share.retired.load(std::memory_order_relaxed)) return false;
  std::array<ibv_wc, kBatch> completions;
  bool found = false;
  for (;;) {
    const int count = share.queue->poll(completions);
    if (count < 0) share.failed_call.store("ibv_poll_cq");
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
      const auto sink = share.sinks.find(completion.qp_num);
      if (sink != share.sinks.end()) {
        sink->second->on_completion(completion);
      } else if (share.pool) {  // left behind by a queue pair that was replaced or closed
        share.pool->on_completion(completion);
      }
    }
    found = found || count > 0;
    if (count < kBatch) return found;
  }
}

bool Poller::arm() noexcept {
  const std::lock_guard lock(poll_mutex_);
  bool armed = true;
  for (Share& share : shares_) {
    if (share.retired.load(std::memory_order_relaxed) || share.queue->arm() == 0) continue;
    share.failed_call.store("ibv_req_notify_cq");
    armed = false;
  }
  return armed;
}

void Poller::wake() noexcept {
  // Pairs with sleep(). A read-modify-write, not a load: if it comes after the sleeper counted
  // itself, it sees the sleeper; if before, the sleeper sees the change made by the caller.
  if (sleepers_->fetch_add(0) == 0) return;
  {
    const std::lock_guard lock(sleep_mutex_);
    wakeups_.fetch_add(1);
    wakeup_.notify_all();
  }
  if (waits_) waits_->look();
}

void Poller::arm_for_sleepers() noexcept {
  if (arm()) flush();  // otherwise the progress thread polls
}

std::chrono::milliseconds Poller::serve() noexcept {
  const auto pause = serve_queues();
  return waits_ ? std::min(pause, waits_->look_for_gpus()) : pause;
}

std::chrono::milliseconds Poller::serve_queues() noexcept {
  const std::uint64_t polls = polls_.load(std::memory_order_relaxed);
  const std::uint64_t begun = begun_.load(std::memory_order_relaxed);
  const bool is_awaited = sleepers_->load() != 0;
  looks_.store(false);
  looks_later_.store(false);
  if (polls != polls_seen_ && !is_awaited) {
    polls_seen_ = polls;
    looks_later_.store(true);
    return kWhilePolled;
  }
  if (begun != begun_seen_ && !is_awaited) {
    begun_seen_ = begun;
    looks_.store(true);
    std::this_thread::sleep_for(kNap);
    return std::chrono::milliseconds(0);
  }
  poll();
  if (!arm()) return kWhilePolled;
  flush();  // completions before the arming raise no event; another thread's poll may have missed
            // them
  return look_on();
}

std::chrono::milliseconds Poller::look_on() noexcept {
  constexpr std::chrono::steady_clock::time_point kNever{};
  const bool pending = sources_pending();  // after storing looks_: see looks()
  if (!pending && busy_since_ == kNever) return kForever;
  const auto now = std::chrono::steady_clock::now();
  if (!pending && now > busy_until_) {
    busy_since_ = kNever;
    return kForever;
  }
  if (!pending || busy_since_ == kNever) busy_since_ = now;
  if (pending) busy_until_ = now + kLinger;
  if (now - busy_since_ >= kSourceSpin) return kWhilePolled;
  looks_.store(true);
  return std::chrono::milliseconds(0);
}

}  // namespace zerohop::engine
