#include "base/executor.hpp"

#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/fork.hpp"
#include "base/locks.hpp"
#include "base/scarcity.hpp"

namespace zerohop {

struct Executor::State {
  State(const char* of_thread, Thread how) : name(of_thread), lasts(how == Thread::lasting) {}

  // Runs on the executor's thread.
  void run_all() noexcept {
    std::unique_lock lock(mutex);
    for (;;) {
      if (lasts) changed.wait(lock, [this] { return stopped || !waiting.empty(); });
      if (waiting.empty()) break;
      {
        const Work work = std::move(waiting.front());
        waiting.pop_front();
        const bool begins = !stopped;
        lock.unlock();
        if (begins) work();
      }  // and with it what it captured: perhaps this Executor
      lock.lock();
    }
    thread = {};
    ended.notify_all();
  }

  // Call with the mutex held.
  static void start(const std::shared_ptr<State>& state) {
    std::thread running = start_thread(state->name, [mine = state] { mine->run_all(); });
    state->thread = running.get_id();
    running.detach();
  }

  const char* const name;
  const bool lasts;
  const unsigned generation = fork_generation();
  Mutex<Rank::executor> mutex;  // guards all members below
  Condition ended;
  Condition changed;
  std::deque<Work> waiting;
  std::thread::id thread;  // none: no thread runs
  bool stopped = false;
};

Executor::Executor(const char* name, Thread thread)
    : state_(std::make_shared<State>(name, thread)) {
  if (thread == Thread::brief) return;
  const std::lock_guard lock(state_->mutex);
  State::start(state_);
}

Executor::~Executor() {
  if (state_->generation == fork_generation()) {
    (void)stop(Deadline::after(Deadline::Seconds{2}));
  } else {
    new auto(state_);  // the thread exists in the parent only: leak the state
  }
}

bool Executor::run(Work& work) noexcept {
  State& state = *state_;
  if (state.generation != fork_generation()) return false;
  try {
    const std::lock_guard lock(state.mutex);
    if (state.stopped) return false;
    state.waiting.emplace_back();
    if (state.thread == std::thread::id()) {
      try {
        State::start(state_);
      } catch (...) {
        state.waiting.pop_back();
        throw;
      }
    }
    state.waiting.back() = std::move(work);
    state.changed.notify_one();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool Executor::stop(const Deadline& deadline) noexcept {
  State& state = *state_;
  if (state.generation != fork_generation()) return true;
  std::unique_lock lock(state.mutex);
  state.stopped = true;
  state.changed.notify_all();
  const auto done = [&state] {
    return state.thread == std::thread::id() || state.thread == std::this_thread::get_id();
  };
  return state.ended.wait_until(lock, deadline.at(), done);
}

}  // namespace zerohop
