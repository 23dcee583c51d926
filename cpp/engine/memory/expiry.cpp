#include "engine/memory/expiry.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace zerohop::engine {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNothingDue{60'000};
constexpr milliseconds kAwaiting{2};  // between two checks of a running copy

}  // namespace

void Expiry::at(Clock::time_point when, WeakMemory memory) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return;  // the Endpoint is closed, and the right with it
  if (due_.size() >= next_sweep_) {
    std::erase_if(due_, [](const auto& entry) { return entry.second.gone(); });
    next_sweep_ = std::max<std::size_t>(64, 2 * due_.size());
  }
  due_.emplace(when, std::move(memory));
  if (!thread_) {
    auto thread = std::make_unique<ProgressThread>([this] { return close_due(); });
    thread->start();
    thread_ = std::move(thread);
  }
  thread_->run([] {});  // makes the thread recompute how long it may sleep
}

void Expiry::stop() noexcept {
  std::unique_ptr<ProgressThread> thread;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    thread = std::move(thread_);
    due_.clear();
  }
  thread.reset();
  for (auto& [closing, deadline] : closings_) closing.finish(deadline);
  closings_.clear();
}

bool Expiry::runs() const {
  const std::lock_guard lock(mutex_);
  return thread_ != nullptr;
}

milliseconds Expiry::close_due() {
  std::vector<WeakMemory> over;
  milliseconds sleep = kNothingDue;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    const auto first_later = due_.upper_bound(now);
    for (auto entry = due_.begin(); entry != first_later; ++entry) over.push_back(entry->second);
    due_.erase(due_.begin(), first_later);
    if (!due_.empty()) {
      sleep = std::min(sleep, std::chrono::ceil<milliseconds>(due_.begin()->first - now));
    }
  }
  const Deadline soon = Deadline::after(shm::kLongestCopy);
  for (const WeakMemory& memory : over) {
    if (auto closing = Closing::begin(memory)) closings_.emplace_back(std::move(*closing), soon);
  }
  std::erase_if(closings_, [](auto& entry) {
    auto& [closing, deadline] = entry;
    if (closing.is_awaited() && !deadline.passed()) return false;
    closing.finish(deadline);
    return true;
  });
  if (!closings_.empty()) return kAwaiting;
  return over.empty() ? sleep : milliseconds{0};  // closing may have taken a while
}

}  // namespace zerohop::engine
