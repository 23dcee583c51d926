// Long copies, made by one thread for all Peers, so that their callers continue meanwhile. The
// copies of one Peer run one after the other, in order; Peers take turns, step by step.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <thread>
#include <unordered_map>

#include "base/deadline.hpp"
#include "base/locks.hpp"

namespace zerohop::engine {

class CopyQueue {
 public:
  CopyQueue() = default;
  ~CopyQueue() { stop(); }
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;

  enum class Step {
    done,
    more,   // another step, in this Peer's next turn
    later,  // it cannot continue now: others go first, and it is tried again a millisecond later
  };
  using Copy = std::function<Step()>;  // must not throw or wait
  // peer: copies keep order per peer. Throws Error if the thread cannot be started or was stopped.
  void put(const void* peer, Copy copy);
  // Runs the remaining copies first; they notice when they have become useless. Not in a forked
  // child, which lacks the thread, nor on the thread itself.
  void stop() noexcept;

 private:
  using Clock = Deadline::Clock;
  struct Line {
    const void* peer;
    std::deque<Copy> copies;  // never empty
    Clock::time_point again;  // for a parked one
  };
  using Lines = std::list<Line>;
  using Lock = std::unique_lock<Mutex<Rank::copy_queue>>;

  void run() noexcept;
  void take_step(Lock& lock) noexcept;

  Mutex<Rank::copy_queue> mutex_;  // guards all below
  Condition changed_;
  Lines turns_;   // lines whose first copy can run, in turn
  Lines parked_;  // lines whose first copy cannot; parked longest first
  std::unordered_map<const void*, Lines::iterator> lines_;  // in either
  bool stopping_ = false;
  std::thread thread_;  // started with the first copy
};

}  // namespace zerohop::engine
