// Copies that take long, made by one thread for all Peers, so that their callers go on meanwhile.
// Those of one Peer are made one after the other, in their order; Peers take turns, step by step.
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
    more,   // another step, when it is this Peer's turn again
    later,  // it cannot go on now: others do, and it is asked again a millisecond later
  };
  using Copy = std::function<Step()>;  // neither throws nor waits
  // peer: whose order counts. Throws Error when the thread cannot be started, or has been stopped.
  void put(const void* peer, Copy copy);
  // Makes the copies that are left first: they know when they are of no use any more. Not in a
  // forked child, where the thread is not; nor on the thread itself.
  void stop() noexcept;

 private:
  using Clock = Deadline::Clock;
  struct Line {
    const void* peer;
    std::deque<Copy> copies;  // never empty
    Clock::time_point again;  // of a parked one
  };
  using Lines = std::list<Line>;
  using Lock = std::unique_lock<Mutex<Rank::copy_queue>>;

  void run() noexcept;
  void take_step(Lock& lock) noexcept;

  Mutex<Rank::copy_queue> mutex_;  // guards all below
  Condition changed_;
  Lines turns_;   // whose first copy can go on, the next one first
  Lines parked_;  // whose first copy cannot; the longest first
  std::unordered_map<const void*, Lines::iterator> lines_;  // in either
  bool stopping_ = false;
  std::thread thread_;  // from the first copy on
};

}  // namespace zerohop::engine
