// The thread of an Endpoint that drives its staged transfers: it starts copies and checks whether
// they are done, so that no other thread ever waits for a GPU.
#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/locks.hpp"
#include "engine/wait/poller.hpp"

namespace zerohop::engine {

class Staging;

// How soon the thread must look again by itself, because the end of a copy raises no event.
enum class StagingPace { when_asked, now_and_then, at_once };

class Stager {
 public:
  explicit Stager(std::shared_ptr<Poller> poller) : poller_(std::move(poller)) {}
  ~Stager() { stop(); }
  Stager(const Stager&) = delete;
  Stager& operator=(const Stager&) = delete;

  // There may be work for it. From any thread, with any locks held; the first call starts the
  // thread. False: it has stopped, or cannot be started.
  bool wake(std::shared_ptr<Staging> staging) noexcept;
  // Something that active stagings wait for has happened.
  void nudge() noexcept;
  // Ends after all begun work has ended: the Peers are lost by then. Not in a forked child, which
  // lacks the thread.
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
