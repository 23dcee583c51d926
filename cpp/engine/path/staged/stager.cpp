#include "engine/path/staged/stager.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/locks.hpp"
#include "base/report.hpp"
#include "base/scarcity.hpp"
#include "base/spin_wait.hpp"
#include "engine/path/staged/staging.hpp"

namespace zerohop::engine {
namespace {

// How long the thread looks for completions by itself before it leaves that to others and sleeps:
// a few chunks' time.
constexpr std::chrono::microseconds kSpin{100};

// How often it looks whether a GPU that hung goes on.
constexpr std::chrono::milliseconds kLook{20};

}  // namespace

bool Stager::wake(std::shared_ptr<Staging> staging) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    if (std::ranges::find(woken_, staging) == woken_.end()) woken_.push_back(std::move(staging));
    if (!thread_.joinable()) thread_ = start_thread("zh-stage", [this] { run(); });
  } catch (const std::exception& error) {
    report({"the thread of staged transfers cannot go on: ", error.what()});
    return false;
  }
  changed_.notify_all();
  return true;
}

void Stager::nudge() noexcept {
  {
    const std::lock_guard lock(mutex_);
    nudged_ = true;
  }
  changed_.notify_all();
}

void Stager::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Stager::run() noexcept {
  Stagings busy;
  auto pace = Pace::when_told;
  while (wait(busy, pace)) pace = advance(busy);
}

// The fastest pace that any of them needs.
Stager::Pace Stager::advance(Stagings& busy) const noexcept {
  auto pace = Pace::when_told;
  std::erase_if(busy, [&](const auto& staging) {
    Pace its = Pace::now_and_then;
    try {
      its = staging->advance();
    } catch (const std::exception& error) {  // out of memory: what was begun is still there
      report({"staged transfers cannot go on for now: ", error.what()});
    }
    pace = std::max(pace, its);
    return staging->ended() && its == Pace::when_told;
  });
  return pace;
}

// Returns when there may be something to do. False: the thread is to end.
bool Stager::wait(Stagings& busy, Pace pace) {
  for (SpinWait polling(kSpin);;) {
    if (!busy.empty()) poller_->poll();
    const bool spins = polling.pause() && !busy.empty();
    {
      std::unique_lock lock(mutex_);
      const bool slept = !spins && pace != Pace::at_once && sleep(lock, busy, pace);
      const bool woken = std::exchange(nudged_, false) || !woken_.empty() || slept;
      for (auto& staging : std::exchange(woken_, {})) {
        if (std::ranges::find(busy, staging) == busy.end()) busy.push_back(std::move(staging));
      }
      if (woken) return true;
      if (may_stop(busy)) return false;
    }
    if (pace == Pace::at_once) return true;
  }
}

// Until somebody wakes the thread, or it has something to look after by itself: true then.
bool Stager::sleep(std::unique_lock<Mutex<Rank::stager>>& lock, const Stagings& busy, Pace pace) {
  const auto told = [&] { return nudged_ || !woken_.empty() || may_stop(busy); };
  if (pace == Pace::now_and_then) return !changed_.wait_for(lock, kLook, told);
  changed_.wait(lock, told);
  return false;
}

// Copies that hang keep nobody.
bool Stager::may_stop(const Stagings& busy) const noexcept {
  return stopping_ && std::ranges::all_of(busy, [](const auto& one) { return one->ended(); });
}

}  // namespace zerohop::engine
