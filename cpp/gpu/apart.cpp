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

// Frees what belongs to one GPU. Work that waits for the GPU has a thread of its own.
class Reaper {
 public:
  explicit Reaper(const std::atomic<bool>& ending) : ending_(ending) {}

  void run(Work work) { run_by(now_, work); }
  bool try_run(Work& work) noexcept { return now_.run(work); }

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
      new auto(std::move(work));  // leak: process exit frees it all
    } else {
      work();
    }
  }

  // One wait serves all work that was queued before it began.
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
  std::atomic<std::uint64_t> idle_{0};  // target: all requests up to this one
  Executor now_{"zh-free"};
  Executor when_idle_{"zh-free-idle"};
};

// Work running on the threads, and postponed work.
class Works {
 public:
  Reaper& reaper(int gpu) {
    const std::lock_guard lock(mutex_);
    return reapers_.try_emplace(gpu, ending_).first->second;
  }
  // Returns whether the work was postponed.
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
  std::vector<std::pair<int, Work>> end_wait() {  // returns work that is no longer postponed
    const std::lock_guard lock(mutex_);
    return --waits_ == 0 ? std::exchange(put_off_, {}) : std::vector<std::pair<int, Work>>();
  }
  // At process exit running work would use a driver that is shutting down: wait for it, and start
  // nothing more.
  void end_all() {
    const Deadline deadline = Deadline::after(Deadline::Seconds{2});  // in case the GPU hangs
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
  Mutex<Rank::works_apart> mutex_;  // guards all members below
  std::map<int, Reaper> reapers_;   // by ordinal; elements have stable addresses
  int waits_ = 0;                   // number of KernelsWait objects
  std::vector<std::pair<int, Work>> put_off_;
};

// A child of fork() has neither the threads nor the CUDA of its parent; it postpones and frees only
// its own work.
PerProcess<Works> all_works;

// Constructed after the driver is in use, so that it is destroyed before the driver.
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

bool try_run_apart(int gpu, Work& work) noexcept { return works().reaper(gpu).try_run(work); }

void run_when_idle(std::shared_ptr<const Device> device, Work work) noexcept {
  Reaper& reaper = works().reaper(device->ordinal());
  reaper.run_when_idle(std::move(device), std::move(work));
}

KernelsWait::KernelsWait() : generation_(fork_generation()) { works().begin_wait(); }
KernelsWait::~KernelsWait() {
  if (generation_ != fork_generation()) return;  // belongs to the parent
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
  static auto* const kept = new std::vector<std::shared_ptr<const void>>();  // used until exit
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(what));
}

}  // namespace zerohop::gpu
