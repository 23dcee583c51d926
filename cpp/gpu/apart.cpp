#include "gpu/apart.hpp"

#include <pthread.h>

#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "base/locks.hpp"

namespace zerohop::gpu {
namespace {

using Work = std::function<void()>;

// What runs apart. The process ends some time: what still runs then would use a driver that is
// being taken down, so it is waited for, and nothing more is begun.
class Works {
 public:
  bool begin() {
    const std::lock_guard lock(mutex_);
    if (ending_) return false;
    leave_to_parent();
    ++running_;
    return true;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) ended_.notify_all();
  }
  // Whether it was put off.
  bool put_off(Work& work) {
    const std::lock_guard lock(mutex_);
    leave_to_parent();
    if (waits_ == 0) return false;
    put_off_.push_back(std::move(work));
    return true;
  }
  void begin_wait() {
    const std::lock_guard lock(mutex_);
    leave_to_parent();
    ++waits_;
  }
  std::vector<Work> end_wait() {  // with what is no longer put off
    const std::lock_guard lock(mutex_);
    return --waits_ == 0 ? std::exchange(put_off_, {}) : std::vector<Work>();
  }
  void end_all() {
    constexpr std::chrono::seconds kMost{2};  // a GPU that hangs holds nobody up
    std::unique_lock lock(mutex_);
    ending_ = true;
    if (generation_ != fork_generation()) return;
    ended_.wait_for(lock, kMost, [this] { return running_ == 0; });
  }

 private:
  // In a child of fork() the threads, what waits and what is put off are the parent's: that is
  // neither done nor destroyed here.
  void leave_to_parent() {
    if (generation_ == fork_generation()) return;
    generation_ = fork_generation();
    running_ = waits_ = 0;
    new auto(std::exchange(put_off_, {}));
  }

  Mutex<Rank::works_apart> mutex_;  // guards the next
  Condition ended_;
  unsigned generation_ = fork_generation();
  int running_ = 0;
  bool ending_ = false;
  int waits_ = 0;  // of class KernelsWait
  std::vector<Work> put_off_;
};

// Made once the driver is in use: so it ends before the driver does.
struct AtExit {
  explicit AtExit(Works& all) : works(all) {}
  ~AtExit() { works.end_all(); }
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;
  Works& works;
};

Works& works() {
  static auto* const all = new Works;  // beyond exit, too: a thread may end later
  static const AtExit at_exit(*all);
  return *all;
}

}  // namespace

void run_apart(std::function<void()> work) noexcept {
  if (!works().begin()) {
    new auto(std::move(work));  // the end of the process gives all of it back
    return;
  }
  auto* const mine = new Work(std::move(work));  // of the thread alone
  try {
    std::thread thread([mine] {
      (*mine)();
      delete mine;  // with what it holds
      works().end();
    });
    ::pthread_setname_np(thread.native_handle(), "zh-free");
    thread.detach();
  } catch (const std::system_error&) {
    (*mine)();
    delete mine;
    works().end();
  }
}

KernelsWait::KernelsWait() : generation_(fork_generation()) { works().begin_wait(); }
KernelsWait::~KernelsWait() {
  if (generation_ != fork_generation()) return;  // the parent's
  std::vector<Work> works_now = works().end_wait();
  if (works_now.empty()) return;
  run_apart([all = std::move(works_now)] {
    for (const Work& work : all) work();
  });
}

void give_back_apart(std::function<void()> work) noexcept {
  if (!works().put_off(work)) run_apart(std::move(work));
}

void give_back(std::function<void()> work) noexcept {
  if (!works().put_off(work)) work();
}

void keep_for_good(std::shared_ptr<const void> what) noexcept {
  static Mutex<Rank::kept_for_good> mutex;
  static auto* const kept = new std::vector<std::shared_ptr<const void>>();  // beyond exit, too
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(what));
}

}  // namespace zerohop::gpu
