// Runs work items one after another on its own thread, for callers that must not block: the thread
// that answers peers may need a driver call that takes seconds.
#pragma once

#include <functional>
#include <memory>

#include "base/deadline.hpp"

namespace zerohop {

// Work queued behind a call that hangs waits with it; stop() gives up on both.
class Executor {
 public:
  using Work = std::function<void()>;  // does not throw

  // brief: the thread starts with the first work item and ends after the last, so an idle Executor
  // has none. lasting: the thread starts now, with the C++ library's per-thread exception data
  // already allocated, so that it can run work that fails for lack of memory. Throws Error when the
  // process is out of threads.
  enum class Thread { brief, lasting };
  // name: thread name, at most 15 bytes.
  explicit Executor(const char* name, Thread thread = Thread::brief);
  ~Executor();  // stop() with a deadline of two seconds
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Queues the work; it runs, and is destroyed, after all earlier work. Returns false and leaves
  // the work with the caller when stopped, in a child of fork(), or when the system is out of
  // threads or memory.
  [[nodiscard]] bool run(Work& work) noexcept;

  // Starts no more work, and waits for the running item unless called from it. False: the deadline
  // passed first, and the thread continues with its current item. Before it ends, the thread
  // destroys the items that never started.
  bool stop(const Deadline& deadline) noexcept;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

}  // namespace zerohop
