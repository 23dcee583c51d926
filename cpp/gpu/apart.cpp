#include "gpu/apart.hpp"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/executor.hpp"
#include "base/locks.hpp"
#include "base/per_process.hpp"
#include "gpu/stream_wait.hpp"

namespace zerohop::gpu {
namespace {

using Work = std::function<void()>;

// Gives back what belongs to one GPU. What waits for the GPU has a thread apart from what does not.
class Reaper {
 public:
  explicit Reaper(const std::atomic<bool>& ending) : ending_(ending) {}

  void run(Work work) { run_by(now_, work); }

  void run_when_idle(std::shared_ptr<const Device> device, Work work) {
    const std::uint64_t mine = ++asked_;
    Work waiting = [this, mine, device = std::move(device), then = std::move(work)] {
      if (idle_ < mine) wait(*device);
      then();
    };
    run_by(when_idle_, waiting);
  }

  void stop(const Deadline& deadline) noexcept {
    (void)now_.stop(deadline);
    (void)when_idle_.stop(deadline);
  }

 private:
  void run_by(Executor& executor, Work& work) {
    if (executor.run(work)) return;
    if (ending_) {
      new auto(std::move(work));  // the end of the process gives all of it back
    } else {
      work();
    }
  }

  // One wait serves all who had asked before it began.
  void wait(const Device& device) {
    const std::uint64_t asked = asked_;
    try {
      const DeviceGuard guard(device);
      wait_until_idle(device);
      idle_ = asked;
    } catch (const CudaError&) {
      // The context is gone, as at process exit: nothing runs.
    }
  }

  const std::atomic<bool>& ending_;
  std::atomic<std::uint64_t> asked_{0};
  std::atomic<std::uint64_t> idle_{0};  // for all who asked up to this one
  Executor now_{"zh-free"};
  Executor when_idle_{"zh-free-idle"};
};

// What runs apart, and what is put off.
class Works {
 public:
  Reaper& reaper(int gpu) {
    const std::lock_guard lock(mutex_);
    return reapers_.try_emplace(gpu, ending_).first->second;
  }
  // Whether it was put off.
  bool put_off(int gpu, Work& work) {
    const std::lock_guard lock(mutex_);
    if (waits_ == 0) return false;
    put_off_.emplace_back(gpu, std::move(work));
    return true;
  }
  void begin_wait() {
    const std::lock_guard lock(mutex_);
    ++waits_;
  }
  std::vector<std::pair<int, Work>> end_wait() {  // with what is no longer put off
    const std::lock_guard lock(mutex_);
    return --waits_ == 0 ? std::exchange(put_off_, {}) : std::vector<std::pair<int, Work>>();
  }
  // The process ends: what still runs then would use a driver that is being taken down, so it is
  // waited for, and nothing more is begun.
  void end_all() {
    const Deadline deadline = Deadline::after(Deadline::Seconds{2});  // should the GPU hang
    ending_ = true;
    std::vector<Reaper*> all;
    {
      const std::lock_guard lock(mutex_);
      for (auto& [gpu, reaper] : reapers_) all.push_back(&reaper);
    }
    for (Reaper* reaper : all) reaper->stop(deadline);
  }

 private:
  std::atomic<bool> ending_{false};
  Mutex<Rank::works_apart> mutex_;  // guards all below
  std::map<int, Reaper> reapers_;   // by ordinal; they stay where they are
  int waits_ = 0;                   // of class KernelsWait
  std::vector<std::pair<int, Work>> put_off_;
};

// A child of fork() has neither the threads nor the CUDA of its parent: what that put off is its
// own to give back.
PerProcess<Works> all_works;

// Made once the driver is in use: so it ends before the driver does.
struct AtExit {
  AtExit() = default;
  ~AtExit() { all_works.get().end_all(); }
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;
};

Works& works() {
  static const AtExit at_exit;
  return all_works.get();
}

}  // namespace

void run_apart(int gpu, Work work) noexcept { works().reaper(gpu).run(std::move(work)); }

void run_when_idle(std::shared_ptr<const Device> device, Work work) noexcept {
  Reaper& reaper = works().reaper(device->ordinal());
  reaper.run_when_idle(std::move(device), std::move(work));
}

KernelsWait::KernelsWait() : generation_(fork_generation()) { works().begin_wait(); }
KernelsWait::~KernelsWait() {
  if (generation_ != fork_generation()) return;  // the parent's
  for (auto& [gpu, work] : works().end_wait()) run_apart(gpu, std::move(work));
}

void give_back_apart(int gpu, Work work) noexcept {
  if (!works().put_off(gpu, work)) run_apart(gpu, std::move(work));
}

void give_back(int gpu, Work work) noexcept {
  if (!works().put_off(gpu, work)) work();
}

void keep_for_good(std::shared_ptr<const void> what) noexcept {
  static Mutex<Rank::kept_for_good> mutex;
  static auto* const kept = new std::vector<std::shared_ptr<const void>>();  // beyond exit, too
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(what));
}

}  // namespace zerohop::gpu
