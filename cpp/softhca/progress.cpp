#include "softhca/progress.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <cerrno>
#include <optional>

#include "base/error.hpp"
#include "base/scarcity.hpp"
#include "base/spin_wait.hpp"
#include "softhca/completion_queue.hpp"
#include "softhca/context.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {
namespace {

using std::chrono::microseconds;

constexpr microseconds kPollsAreRecent{300};
constexpr microseconds kStepBack{500};
// How long the thread keeps polling after it found work, before it sleeps: waking it costs the
// thread or interrupt that delivers the next bytes several microseconds.
constexpr microseconds kSpin{50};
// Between two polls of the doorbells, which raise no event. Each wakes the thread: some 20 us of a
// virtual machine's time.
constexpr microseconds kDoorbellPause{50};
// Otherwise the kernel would stretch every timed wait of the thread by 50 us (prctl(2)).
constexpr unsigned long kTimerSlackNs = 1000;
// A sweep over all connections costs a system call, and so does serving one.
constexpr unsigned kSweepEvery = 32;              // empty polls
constexpr unsigned kSweepEveryAlone = 128;        // without any other queue pair to serve
constexpr unsigned kSweepAtLeastEvery = 512;      // even when the hot queue pair is busy
constexpr microseconds kSweepAtLeastAfter{1000};  // even when polls are rare
constexpr unsigned kClockEvery = 8;  // empty polls; reading the clock costs as much as half a poll

std::int64_t now_ns() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

// The program's signal handlers must not run on this thread: it holds locks.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

Progress::Progress(Context& context) : context_(context) {
  if (!context_.poller.add(wake_.fd(), EPOLLIN, *this)) {
    throw Error(errno_message("epoll_ctl failed", errno), errno);
  }
}

void Progress::start() {
  const SignalsBlocked blocked;  // inherited by the thread
  thread_ = start_thread("zerohop-softhca", [this] { run(); });
}

void Progress::stop() noexcept {
  stopping_.store(true);
  wake_.ring();
  {
    std::lock_guard guard(mutex_);
    called_back_.notify_all();
  }
  thread_.join();
}

void Progress::run() noexcept {
  ::prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  while (!stopping_.load()) {
    Epoll::Batch batch;
    answer_doorbells();
    if (somebody_drives()) {
      step_back();
      if (!is_recent(last_post_) || is_recent(last_poll_)) continue;
      context_.poller.look(batch);  // a thread that only posts never reads: do it here now and then
    } else {
      watch(batch);
      if (somebody_drives()) {
        wake_.silence();  // handled; otherwise it would make every poll sweep
        continue;
      }
    }
    std::lock_guard guard(context_.control);
    sweep(batch, /*polled=*/false);
  }
}

bool Progress::is_recent(const std::atomic<std::int64_t>& time) const noexcept {
  const std::int64_t since = now_ns() - time.load(std::memory_order_relaxed);
  return since < std::chrono::nanoseconds(kPollsAreRecent).count();
}

bool Progress::somebody_drives() const noexcept {
  // A caller that arms a completion queue polls once more and then sleeps: ignore that poll.
  if (armed_.load(std::memory_order_relaxed) > 0) return false;
  if (is_recent(last_ring_)) return false;  // posts by doorbell complete without any poll
  return is_recent(last_poll_) || is_recent(last_post_);
}

void Progress::step_back() noexcept {
  const microseconds pause = context_.doorbells.any() ? kDoorbellPause : kStepBack;
  std::unique_lock guard(mutex_);
  stepped_back_.store(true);
  called_back_.wait_for(guard, pause, [this] { return stopping_.load() || armed_.load() > 0; });
  stepped_back_.store(false);
}

bool Progress::answer_doorbells() noexcept {
  if (!context_.doorbells.answer()) return false;
  last_ring_.store(now_ns(), std::memory_order_relaxed);
  return true;
}

// Returns whether there is a reason to stop watching.
bool Progress::spin(Epoll::Batch& batch) noexcept {
  std::optional<SpinWait> wait(kSpin);
  do {
    if (answer_doorbells()) wait.emplace(kSpin);
    context_.poller.look(batch);
    if (batch.count > 0 || has_late_.load() || stopping_.load() || somebody_drives()) return true;
  } while (wait->pause());
  return false;
}

void Progress::watch(Epoll::Batch& batch) noexcept {
  const bool rung = is_recent(last_ring_);
  if ((rung || busy_.load(std::memory_order_relaxed)) && spin(batch)) return;
  // acknowledge_later() sets has_late_ and then reads watching_; this does the reverse. Both are
  // sequentially consistent: one of the two sees the other.
  watching_.store(true);
  if (!has_late_.load() && !stopping_.load()) {
    if (!context_.doorbells.any()) {
      context_.poller.wait(batch);
    } else {
      context_.poller.wait(batch, rung ? microseconds{0} : kDoorbellPause);
    }
  }
  watching_.store(false);
}

// Only the thread silences the wake-up: a poll that did could consume one that the thread has not
// seen yet.
void Progress::on_ready(std::uint32_t) noexcept {
  if (!sweep_is_polled_) wake_.silence();
}

void Progress::armed() noexcept {
  armed_.fetch_add(1);
  if (!stepped_back_.load()) return;
  std::lock_guard guard(mutex_);
  called_back_.notify_all();
}

void Progress::posted() noexcept { last_post_.store(now_ns(), std::memory_order_relaxed); }

void Progress::poll(CompletionQueue& cq) noexcept {
  const unsigned count = cq.polls.fetch_add(1, std::memory_order_relaxed);
  bool moved = false;
  bool found_hot = false;
  if (QueuePair* qp = cq.lock_hot()) {
    found_hot = true;
    std::lock_guard guard(qp->lock, std::adopt_lock);
    moved = qp->serve(/*polled=*/true);
  }
  bool overdue = false;
  if (moved || count % kClockEvery == 0) {
    const std::int64_t now = now_ns();
    last_poll_.store(now, std::memory_order_relaxed);
    const auto unswept =
        std::chrono::nanoseconds(now - last_sweep_.load(std::memory_order_relaxed));
    overdue = unswept > kSweepAtLeastAfter;
  }
  // Sweeps can be rare only if the hot queue pair is the only one of its context, and no
  // acknowledgement waits for a sweep.
  const bool may_wait = found_hot && !has_late_.load(std::memory_order_relaxed);
  const unsigned every = may_wait ? sweep_every_.load(std::memory_order_relaxed) : kSweepEvery;
  const bool due = count % every == 0 || busy_.load(std::memory_order_relaxed);
  const bool may_stay = !due || (cq.filled() && count % kSweepAtLeastEvery != 0);
  if (!overdue && may_stay) return;
  std::unique_lock guard(context_.control, std::try_to_lock);
  if (!guard) return;
  Epoll::Batch batch;
  context_.poller.look(batch);
  sweep(batch, /*polled=*/true);
}

void Progress::sweep(const Epoll::Batch& batch, bool polled) noexcept {
  sweep_is_polled_ = polled;
  last_sweep_.store(now_ns(), std::memory_order_relaxed);
  // Before looking for new work: these have waited since the last sweep.
  if (has_late_.load(std::memory_order_relaxed)) send_late_acknowledgements();
  const int found = context_.poller.dispatch(batch);
  const bool alone = context_.queue_pairs.size() < 2;
  sweep_every_.store(alone ? kSweepEveryAlone : kSweepEvery, std::memory_order_relaxed);
  busy_.store(found > 0, std::memory_order_relaxed);
}

void Progress::acknowledge_later(QueuePair& qp) noexcept {
  if (qp.in_late_list) return;
  qp.in_late_list = true;
  {
    std::lock_guard guard(mutex_);
    qp.next_late = late_;
    late_ = &qp;
    has_late_.store(true);
  }
  if (watching_.load()) wake_.ring();
}

void Progress::send_late_acknowledgements() noexcept {
  QueuePair* list;
  {
    std::lock_guard guard(mutex_);
    list = late_;
    late_ = nullptr;
    has_late_.store(false);
  }
  while (list != nullptr) {
    QueuePair& qp = *list;
    std::lock_guard guard(qp.lock);
    list = qp.next_late;
    qp.in_late_list = false;
    qp.acknowledge_late();
  }
}

void Progress::forget(QueuePair& qp) noexcept {
  std::lock_guard guard(mutex_);
  QueuePair** link = &late_;
  while (*link != nullptr && *link != &qp) link = &(*link)->next_late;
  if (*link != nullptr) *link = qp.next_late;
}

}  // namespace zerohop::softhca
