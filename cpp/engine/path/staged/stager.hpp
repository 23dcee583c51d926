// The thread of an Endpoint that drives its staged transfers: it starts copies and asks whether
// they are done, so that nobody else ever waits for a GPU.
#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/locks.hpp"
#include "engine/wait/poller.hpp"

namespace zerohop::engine {

class Staging;

// How soon the thread is to look again by itself, as nobody tells when copies have ended.
enum class StagingPace { when_told, now_and_then, at_once };

class Stager {
 public:
  explicit Stager(std::shared_ptr<Poller> poller) : poller_(std::move(poller)) {}
  ~Stager() { stop(); }
  Stager(const Stager&) = delete;
  Stager& operator=(const Stager&) = delete;

  // There may be something to do for it. From any thread, whatever locks it holds; the first call
  // starts the thread. False: it has stopped, or cannot be started.
  bool wake(std::shared_ptr<Staging> staging) noexcept;
  // What one of those that it is busy with waits for has come.
  void nudge() noexcept;
  // Ends when all that was begun has ended: the Peers are lost by then. Not in a forked child,
  // where the thread is not.
  void stop() noexcept;

 private:
  using Pace = StagingPace;
  using Stagings = std::vector<std::shared_ptr<Staging>>;

  void run() noexcept;
  Pace advance(Stagings& busy) const noexcept;
  bool wait(Stagings& busy, Pace pace);
  bool may_stop(const Stagings& busy) const noexcept;
  bool sleep(std::unique_lock<Mutex<Rank::stager>>& lock, const Stagings& busy, Pace pace);

  const std::shared_ptr<Poller> poller_;
  Mutex<Rank::stager> mutex_;  // a leaf; guards all below
  Condition changed_;
  Stagings woken_;
  bool nudged_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace zerohop::engine
