// Runs work one after the other on a thread of its own, for callers that must not wait: the thread
// that answers peers may have to ask a driver that takes seconds.
#pragma once

#include <functional>
#include <memory>

#include "base/deadline.hpp"

namespace zerohop {

// Work behind a call that hangs waits; stop() gives up on both.
class Executor {
 public:
  using Work = std::function<void()>;  // does not throw

  // brief: the thread starts with the first work and ends with the last, so that an Executor
  // without work has none. lasting: it starts now and is ready for work that fails for want of
  // memory, with what the C++ library keeps for the exceptions of each thread. Throws Error when
  // the process is out of threads.
  enum class Thread { brief, lasting };
  // name: of the thread, 15 bytes at most.
  explicit Executor(const char* name, Thread thread = Thread::brief);
  ~Executor();  // stop(), with two seconds
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs the work, and destroys it, behind what came before. False, with the work left where it is:
  // stopped, in a child of fork(), or the system has no more threads or memory.
  [[nodiscard]] bool run(Work& work) noexcept;

  // Begins nothing more, and waits for what runs, unless that is the caller. False: the deadline
  // passed first, and the thread goes on with the work that it has. The thread destroys what was
  // not begun before it ends.
  bool stop(const Deadline& deadline) noexcept;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the thread's, too: it may outlive this object
};

}  // namespace zerohop
