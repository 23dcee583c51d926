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

// How long the thread polls for completions before it sleeps and leaves polling to others: the time
// of a few chunks.
constexpr std::chrono::microseconds kSpin{100};

// How often it checks whether a hung GPU continues.
constexpr std::chrono::milliseconds kLook{20};

}  // namespace

bool Stager::wake(std::shared_ptr<Staging> staging) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    if (std::ranges::find(woken_, staging) == woken_.end()) woken_.push_back(std::move(staging));
    if (!thread_.joinable()) thread_ = start_thread("zh-stage", [this] { run(); });
  } catch (const std::exception& error) {
    report({"the thread of staged transfers fails: ", error.what()});
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
  auto pace = Pace::when_asked;
  while (wait(busy, pace)) pace = advance(busy);
}

// The fastest pace that any of them needs.
Stager::Pace Stager::advance(Stagings& busy) const noexcept {
  auto pace = Pace::when_asked;
  std::erase_if(busy, [&](const auto& staging) {
    Pace its = Pace::now_and_then;
    try {
      its = staging->advance();
    } catch (const std::exception& error) {  // out of memory: begun work is kept
      report({"staged transfers cannot continue for now: ", error.what()});
    }
    pace = std::max(pace, its);
    return staging->ended() && its == Pace::when_asked;
  });
  return pace;
}

// Returns when there may be work. False: the thread must end.
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

// Until another thread wakes it, or it must check by itself: returns true then.
bool Stager::sleep(std::unique_lock<Mutex<Rank::stager>>& lock, const Stagings& busy, Pace pace) {
  const auto called = [&] { return nudged_ || !woken_.empty() || may_stop(busy); };
  if (pace == Pace::now_and_then) return !changed_.wait_for(lock, kLook, called);
  changed_.wait(lock, called);
  return false;
}

// Hung copies do not block the stop.
bool Stager::may_stop(const Stagings& busy) const noexcept {
  return stopping_ && std::ranges::all_of(busy, [](const auto& one) { return one->ended(); });
}

}  // namespace zerohop::engine
