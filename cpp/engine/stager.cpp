#include "engine/stager.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/report.hpp"
#include "engine/staging.hpp"

namespace zerohop::engine {
namespace {

// How long the thread looks for completions by itself before it leaves that to others and sleeps:
// a few chunks' time.
constexpr std::chrono::microseconds kSpin{100};

}  // namespace

bool Stager::wake(std::shared_ptr<Staging> staging) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    if (std::ranges::find(woken_, staging) == woken_.end()) woken_.push_back(std::move(staging));
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { run(); });
      ::pthread_setname_np(thread_.native_handle(), "zh-stage");
    }
  } catch (const std::exception& error) {
    report(std::string("the thread of staged transfers cannot go on: ") + error.what());
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
  bool copying = false;
  while (wait(busy, copying)) copying = advance(busy);
}

// Whether copies are under way, which tell nobody when they are done.
bool Stager::advance(Stagings& busy) const noexcept {
  bool copying = false;
  for (const auto& staging : busy) copying = staging->advance() || copying;
  std::erase_if(busy, [](const auto& staging) { return staging->idle(); });
  return copying;
}

// Returns when there may be something to do. False: the thread is to end.
bool Stager::wait(Stagings& busy, bool copying) {
  const auto until = std::chrono::steady_clock::now() + kSpin;
  for (;;) {
    if (!busy.empty()) poller_->poll();
    {
      std::unique_lock lock(mutex_);
      if (!copying && (busy.empty() || std::chrono::steady_clock::now() >= until)) {
        changed_.wait(lock,
                      [&] { return nudged_ || !woken_.empty() || (stopping_ && busy.empty()); });
      }
      const bool woken = std::exchange(nudged_, false) || !woken_.empty();
      for (auto& staging : std::exchange(woken_, {})) {
        if (std::ranges::find(busy, staging) == busy.end()) busy.push_back(std::move(staging));
      }
      if (woken) return true;
      if (stopping_ && busy.empty()) return false;
    }
    std::this_thread::yield();
    if (copying) return true;
  }
}

}  // namespace zerohop::engine
