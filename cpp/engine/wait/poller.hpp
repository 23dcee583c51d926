// The completion queues of an Endpoint, one per rail, and the one way to wait for anything.
//
// A waiting caller polls the queues itself: no other thread stands between a completion and the
// call that waits for it. It yields the core while it polls (SpinWait). After `spin` without
// success it arms the queues and sleeps; then the progress thread polls. While callers poll, the
// progress thread stays out of their way and only checks every millisecond that they still do.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/deadline.hpp"
#include "base/locks.hpp"
#include "base/short_list.hpp"
#include "base/spin_wait.hpp"
#include "engine/rail.hpp"
#include "engine/wait/async_waits.hpp"
#include "rdma/completion_queue.hpp"

namespace zerohop::engine {

// Receives the completions of a queue pair, one at a time, never from two threads at once.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  virtual void on_completion(const ibv_wc& completion) noexcept = 0;
};

class Poller {
 public:
  // interrupt: called at intervals by sleeping callers, with no lock held. An exception from it
  // ends their wait (Ctrl-C). May be empty.
  using Interrupt = std::function<void()>;
  using Devices = std::vector<std::shared_ptr<rdma::Device>>;  // one per rail
  // sleepers: counts waiters while they sleep. Processes of this host may read it to see whether a
  // wake-up is wanted.
  using Sleepers = std::shared_ptr<std::atomic<int>>;
  // silent: counts the kernels that can make a waiter's ready() true without waking any thread.
  // While it is not 0, sleepers look every millisecond.
  using Silent = std::shared_ptr<const std::atomic<std::uint32_t>>;
  Poller(const Devices& devices, std::chrono::microseconds spin, Interrupt interrupt,
         Sleepers sleepers = std::make_shared<std::atomic<int>>(0),
         Silent silent = std::make_shared<Silent::element_type>(0),
         std::shared_ptr<AsyncWaits> waits = nullptr);

  // Throws Error if the Endpoint is closed.
  std::shared_ptr<rdma::CompletionQueue> queue(RailIndex rail) const;

  // Routes completions of a queue pair of that rail to `sink` and makes room for `entries` of them
  // at once, growing the queue as needed. When detach() returns, no completion is being delivered
  // to the sink any more. Neither may be called from on_completion.
  void attach(RailIndex rail, std::uint32_t qp_number, std::shared_ptr<CompletionSink> sink,
              int entries);
  void detach(RailIndex rail, std::uint32_t qp_number, int entries);
  // Routes completions of destroyed queue pairs to `pool`, because they may hold buffers of the
  // shared receive queue. Makes room for `entries`.
  void attach_pool(RailIndex rail, std::shared_ptr<CompletionSink> pool, int entries);
  // The rail's device was removed: stops polling and arming it.
  void retire(RailIndex rail) noexcept;
  // Closes the Endpoint's queues, even if the program keeps Transfers. Call it after the progress
  // thread has ended.
  void release() noexcept;

  // Delivers pending completions. Returns whether there were any. Does nothing while another thread
  // polls.
  bool poll() noexcept;

  // The same, but waits for its turn: on return everything that had completed before is delivered.
  void flush() noexcept;

  // Waits until ready() is true, and does not call it again: ready() may take what it finds. False
  // if the deadline passed first.
  template <typename Ready>
  bool wait(Ready&& ready, const Deadline& deadline);

  // Processes of this host put notifications directly. Makes waiters check for those much more
  // often than they poll the devices, because a poll of the software HCA takes a system call.
  void expect_neighbours() noexcept { neighbours_.store(true, std::memory_order_relaxed); }

  // Work that completes without an event and must be polled: the copies of a GPU.
  class Source {
   public:
    virtual ~Source() = default;
    virtual bool pending() const noexcept = 0;
    virtual void poll() noexcept = 0;  // by any thread, which may hold the caller's own locks only
  };
  // Polls it like the queues from now on, by waiters and by the progress thread.
  void add(const std::shared_ptr<Source>& source);
  // Whether the progress thread polls again by itself, without a pause. A thread that makes a
  // source pending before it checks this need not wake the progress thread.
  bool looks() const noexcept { return looks_.load(); }
  // The same, or within a millisecond: enough for work that only a polling thread waits for.
  bool looks_soon() const noexcept { return looks_.load() || looks_later_.load(); }
  // Records that one more of many transfers began. While they begin in quick succession and no
  // thread sleeps, the progress thread stays out of the way: it would only take their cache lines,
  // and the threads that begin or wait find completions by themselves.
  void note_begun() noexcept { begun_.fetch_add(1, std::memory_order_relaxed); }
  // The progress thread has ended: polls until no source has work left.
  void finish_sources(const Deadline& deadline) noexcept;

  // Wakes sleeping waiters. Call it after every change that makes a waiter's ready() true.
  void wake() noexcept;
  // Waits without a thread; null: none. From its first wait on it counts as a sleeper. After that,
  // call arm_for_sleepers(), as a sleeping caller does.
  AsyncWaits* waits() const noexcept { return waits_.get(); }
  void arm_for_sleepers() noexcept;

  // For the progress thread. serve() delivers completions unless callers poll. It returns how long
  // the thread may sleep before it must look again, even if every event_fd() stays silent.
  int event_fd(RailIndex rail) const noexcept { return shares_[rail].queue->event_fd(); }
  // Takes the events that made event_fd() readable. Returns 0, or the errno after which no event
  // will come.
  [[nodiscard]] int consume_events(RailIndex rail) noexcept {
    return shares_[rail].queue->consume_events();
  }
  std::chrono::milliseconds serve() noexcept;
  // The call that fails permanently on the rail's device; null: none.
  const char* failed_call(RailIndex rail) const noexcept {
    return shares_[rail].failed_call.load();
  }

 private:
  static constexpr std::chrono::milliseconds kWhilePolled{1};
  static constexpr std::chrono::milliseconds kForever{1000};
  // How long waiters poll while a source is pending: a GPU copies more than a GiB in that time, and
  // sleeping and waking takes a hundredth of it.
  static constexpr std::chrono::milliseconds kSourceSpin{5};
  // How long the progress thread keeps polling after the last source completed: the next of a
  // sequence of copies then costs it no system call.
  static constexpr std::chrono::microseconds kLinger{100};
  // Pause of the progress thread while transfers begin in quick succession.
  static constexpr std::chrono::microseconds kNap{50};
  static constexpr std::chrono::milliseconds kBetweenInterrupts{100};
  static constexpr int kLooksPerPoll = 32;  // for neighbours: about as long as a poll

  struct Sleeper {
    explicit Sleeper(std::atomic<int>& count) noexcept : count_(count) { count_.fetch_add(1); }
    ~Sleeper() { count_.fetch_sub(1); }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    std::atomic<int>& count_;
  };

  // State of one rail. Queue pair numbers are unique per device only.
  struct Share {
    std::shared_ptr<rdma::CompletionQueue> queue;
    std::unordered_map<std::uint32_t, std::shared_ptr<CompletionSink>> sinks;
    std::shared_ptr<CompletionSink> pool;
    int reserved = 0;
    std::atomic<bool> retired{false};
    std::atomic<const char*> failed_call{nullptr};
  };

  using Living = ShortList<std::shared_ptr<Source>, 4>;

  std::chrono::milliseconds serve_queues() noexcept;
  void poll_sources() noexcept;
  bool sources_pending() noexcept;
  std::chrono::milliseconds look_on() noexcept;
  bool drain() noexcept;
  static bool drain(Share& share) noexcept;
  static void reserve(Share& share, int entries);
  bool arm() noexcept;  // false: a queue refused
  template <typename Ready>
  bool sleep(Ready& ready, const Deadline& deadline);

  const std::chrono::microseconds spin_;
  const Interrupt interrupt_;
  const Sleepers sleepers_;
  const Silent silent_;
  const std::shared_ptr<AsyncWaits> waits_;

  mutable Mutex<Rank::poller>
      poll_mutex_;  // held while completions are delivered; outermost of the engine's locks
  std::vector<Share> shares_;  // by rail

  Mutex<Rank::poller_sources>
      sources_mutex_;  // guards the next; outermost, except for the callers' own locks
  std::vector<std::weak_ptr<Source>> sources_;
  std::atomic<bool> has_sources_{false};
  std::atomic<bool> looks_{false};
  std::atomic<bool> looks_later_{false};
  std::chrono::steady_clock::time_point busy_since_{};  // this and the next: progress thread only
  std::chrono::steady_clock::time_point busy_until_{};

  SpinWait::Learned learned_;            // of waiting callers
  std::atomic<std::uint64_t> polls_{0};  // by waiting callers
  std::uint64_t polls_seen_ = 0;         // progress thread only
  std::atomic<std::uint64_t> begun_{0};  // see note_begun()
  std::uint64_t begun_seen_ = 0;         // progress thread only

  Mutex<Rank::poller_sleep> sleep_mutex_;
  Condition wakeup_;
  std::atomic<bool> neighbours_{false};
  std::atomic<std::uint64_t> wakeups_{0};
};

template <typename Ready>
bool Poller::wait(Ready&& ready, const Deadline& deadline) {
  if (ready()) return true;
  std::optional<Deadline::Clock::time_point> source_until;  // set once needed
  SpinWait spin(spin_, deadline.at(), &learned_);
  const auto source_may_end = [&] {
    if (!sources_pending()) return false;
    const auto now = Deadline::Clock::now();
    if (!source_until) source_until = std::min(now + kSourceSpin, deadline.at());
    return now < *source_until;
  };
  do {
    // Neighbours first: their values arrive before a device would have answered.
    const bool many = neighbours_.load(std::memory_order_relaxed) && !spin.core_is_shared();
    for (int look = many ? kLooksPerPoll : 0; look > 0; --look) {
      if (ready()) return true;
    }
    polls_.fetch_add(1, std::memory_order_relaxed);
    poll();
    if (ready()) return true;
  } while (spin.pause() || source_may_end());
  return sleep(ready, deadline);
}

template <typename Ready>
bool Poller::sleep(Ready& ready, const Deadline& deadline) {
  // Counts itself and reads the wake-ups before it calls ready(); wake() reads the count after the
  // change. One of the two sees the other (all accesses are sequentially consistent).
  const Sleeper counted(*sleepers_);
  for (;;) {
    const std::uint64_t seen = wakeups_.load();
    // Otherwise a completion between the last poll and the arming would wait for the next event.
    // flush(), not poll(): a thread that polls right now may have looked before that completion
    // came.
    const bool armed = arm();
    poll_sources();
    flush();
    if (ready()) return true;
    if (deadline.passed()) return false;
    const bool may_sleep = armed && silent_->load(std::memory_order_relaxed) == 0;
    const auto slice = Deadline::Clock::now() + (may_sleep ? kBetweenInterrupts : kWhilePolled);
    {
      std::unique_lock lock(sleep_mutex_);
      wakeup_.wait_until(lock, std::min(slice, deadline.at()),
                         [&] { return wakeups_.load() != seen; });
    }
    if (ready()) return true;
    if (interrupt_) interrupt_();
  }
}

}  // namespace zerohop::engine
