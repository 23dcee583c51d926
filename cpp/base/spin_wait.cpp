#include "base/spin_wait.hpp"

#include <sched.h>

#include <algorithm>

namespace zerohop {
namespace {

using namespace std::chrono_literals;

// Frequent enough for a thread on the same core, as the first yield detects; costs a tenth of the
// time when alone.
constexpr auto kBetweenYields = 4us;
// Between the cost of a yield that runs nobody else and that of two context switches.
constexpr auto kNobodyRan = 750ns;
// Two looks take less, so a longer gap means that the thread was preempted.
constexpr auto kPreempted = 100us;
// Linux time slices last 3 ms and more; a polling process runs for some microseconds.
constexpr auto kTimeSlice = 2ms;
// After this many yields in a row that ran nobody, the core is no longer shared.
constexpr int kQuickYields = 8;
constexpr auto kCrowdedFor = 50ms;  // then costs at most one more slice to check again
// A thread that polled for longer would itself be a crowd to others on this core.
constexpr auto kLongestInCrowd = 20us;

}  // namespace

bool SpinWait::look_at_clock() noexcept {
  looks_ = 0;
  auto now = Clock::now();
  if (begin_ == Clock::time_point{}) begin_ = seen_ = yielded_ = now;
  if (now - seen_ >= kPreempted) learn(now - seen_, now);
  if (is_due(now)) {
    ::sched_yield();
    yielded_ = Clock::now();
    learn(yielded_ - now, yielded_);
    now = yielded_;
  }
  seen_ = now;
  return now < last_ && !is_spent(now);
}

bool SpinWait::is_spent(Clock::time_point now) const noexcept {
  const auto own = core_ == Core::crowded ? std::min<Clock::duration>(own_, kLongestInCrowd) : own_;
  return now - begin_ >= own;
}

bool SpinWait::is_due(Clock::time_point now) const noexcept {
  if (core_ == Core::shared) return true;
  if (now - yielded_ < kBetweenYields) return false;
  return core_ == Core::alone || now >= crowded_until_ || is_spent(now);
}

// away: for how long this thread did not run, if others did.
void SpinWait::learn(Clock::duration away, Clock::time_point now) noexcept {
  // One yield proves little: the scheduler may continue with the yielding thread because the other
  // has run for longer.
  quick_ = away < kNobodyRan ? std::min(quick_ + 1, kQuickYields) : 0;
  if (away >= kTimeSlice) {
    core_ = Core::crowded;
  } else if (quick_ == 0) {
    core_ = Core::shared;
  } else if (!core_is_shared() || quick_ >= kQuickYields) {
    core_ = Core::alone;
  }
  if (core_ == Core::crowded) crowded_until_ = now + kCrowdedFor;
  if (core_ != Core::alone) begin_ += away;
  looks_between_ = core_is_shared() ? 1 : kLooksAlone;
  if (learned_ == nullptr) return;
  learned_->core.store(core_, std::memory_order_relaxed);
  learned_->quick.store(quick_, std::memory_order_relaxed);
  learned_->crowded_until.store(crowded_until_.time_since_epoch().count(),
                                std::memory_order_relaxed);
}

}  // namespace zerohop
