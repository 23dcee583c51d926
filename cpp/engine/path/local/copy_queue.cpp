#include "engine/path/local/copy_queue.hpp"

#include <chrono>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "base/scarcity.hpp"

namespace zerohop::engine {
namespace {

constexpr std::chrono::milliseconds kPause{1};  // before a parked copy is tried again

}  // namespace

void CopyQueue::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CopyQueue::put(const void* peer, Copy copy) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw Error("this Endpoint is closed: make a new one");
    // Before the copy is added: an error then leaves nothing behind.
    if (!thread_.joinable()) thread_ = start_thread("zh-copy", [this] { run(); });
    if (const auto known = lines_.find(peer); known != lines_.end()) {
      known->second->copies.push_back(std::move(copy));
      return;  // the thread finds it after the earlier ones
    }
    Lines fresh;
    fresh.push_back({.peer = peer, .copies = {}, .again = {}});
    fresh.front().copies.push_back(std::move(copy));
    lines_.emplace(peer, fresh.begin());
    turns_.splice(turns_.end(), fresh);
  }
  changed_.notify_all();
}

void CopyQueue::run() noexcept {
  Lock lock(mutex_);
  for (;;) {
    const auto now = parked_.empty() ? Clock::time_point{} : Clock::now();
    while (!parked_.empty() && parked_.front().again <= now) {
      turns_.splice(turns_.end(), parked_, parked_.begin());
    }
    if (!turns_.empty()) {
      take_step(lock);
    } else if (!parked_.empty()) {
      changed_.wait_until(lock, parked_.front().again);
    } else if (stopping_) {
      return;
    } else {
      changed_.wait(lock);
    }
  }
}

// Runs a step of the first line in turn. Nothing else removes that line or its first copy
// meanwhile.
void CopyQueue::take_step(Lock& lock) noexcept {
  const Lines::iterator line = turns_.begin();
  Copy& copy = line->copies.front();
  lock.unlock();
  const Step step = copy();
  if (step == Step::done) copy = nullptr;  // releases what it held
  lock.lock();
  if (step == Step::later) {
    line->again = Clock::now() + kPause;
    return parked_.splice(parked_.end(), turns_, line);
  }
  if (step == Step::done) line->copies.pop_front();
  if (!line->copies.empty()) return turns_.splice(turns_.end(), turns_, line);
  lines_.erase(line->peer);
  turns_.erase(line);
}

}  // namespace zerohop::engine
