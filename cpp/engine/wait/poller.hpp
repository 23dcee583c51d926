// The completion queues of an Endpoint, one a rail, and the one way to wait for anything.
//
// A waiting caller polls the queues itself: no other thread stands between a completion and the
// call that waits for it. It gives way while it polls (SpinWait). After `spin` without success it
// arms the queues and sleeps; the progress thread then serves. While callers poll, the progress
// thread keeps out of their way and only looks every millisecond whether they still do.
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
#include "base/spin_wait.hpp"
#include "engine/rail.hpp"
#include "engine/wait/async_waits.hpp"
#include "rdma/completion_queue.hpp"

namespace zerohop::engine {

// Whoever owns a queue pair receives its completions, one at a time, never in two threads at once.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  virtual void on_completion(const ibv_wc& completion) noexcept = 0;
};

class Poller {
 public:
  // interrupt: called now and then, with no lock held, by callers who sleep; what it throws ends
  // their wait (Ctrl-C). May be empty.
  using Interrupt = std::function<void()>;
  using Devices = std::vector<std::shared_ptr<rdma::Device>>;  // one a rail
  // sleepers: where waiters are counted while they sleep; processes of this host may look there
  // whether somebody wants to be woken.
  using Sleepers = std::shared_ptr<std::atomic<int>>;
  // silent: counts those that make a waiter's ready() true and wake nobody: kernels. While there
  // are any, sleepers look every millisecond.
  using Silent = std::shared_ptr<const std::atomic<std::uint32_t>>;
  Poller(const Devices& devices, std::chrono::microseconds spin, Interrupt interrupt,
         Sleepers sleepers = std::make_shared<std::atomic<int>>(0),
         Silent silent = std::make_shared<Silent::element_type>(0),
         std::shared_ptr<AsyncWaits> waits = nullptr);

  // Throws Error when the Endpoint is closed.
  std::shared_ptr<rdma::CompletionQueue> queue(RailIndex rail) const;

  // Routes completions of a queue pair of that rail to `sink` and makes room for `entries` of them
  // at once, growing the queue as needed. detach() returns when no completion is being delivered to
  // the sink any more; neither may be called from on_completion.
  void attach(RailIndex rail, std::uint32_t qp_number, std::shared_ptr<CompletionSink> sink,
              int entries);
  void detach(RailIndex rail, std::uint32_t qp_number, int entries);
  // Completions of queue pairs that are gone go to `pool`: buffers of the shared receive queue are
  // among them. Makes room for `entries`.
  void attach_pool(RailIndex rail, std::shared_ptr<CompletionSink> pool, int entries);
  // The rail's device was removed: it is neither polled nor armed any more.
  void retire(RailIndex rail) noexcept;
  // The Endpoint is closed: the queues go, whatever Transfers the program keeps. The progress
  // thread has ended.
  void let_go() noexcept;

  // Delivers what is there. Returns whether anything was. Does nothing while another thread polls.
  bool poll() noexcept;

  // The same, but waits for its turn: afterwards everything that had completed before is delivered.
  void flush() noexcept;

  // Waits until ready() is true, and does not ask again: ready() may take what it finds. False when
  // the deadline passed first.
  template <typename Ready>
  bool wait(Ready&& ready, const Deadline& deadline);

  // Processes of this host put notifications by themselves: from now on waiters look for those much
  // more often than they poll the devices, which takes a system call on the software HCA.
  void expect_neighbours() noexcept { neighbours_.store(true, std::memory_order_relaxed); }

  // What completes without an event, and has to be polled: the copies of a GPU.
  class Source {
   public:
    virtual ~Source() = default;
    virtual bool pending() const noexcept = 0;
    virtual void poll() noexcept = 0;  // by any thread, which may hold the caller's own locks only
  };
  // From now on it is polled as the queues are, by waiters and by the progress thread.
  void add(const std::shared_ptr<Source>& source);
  // Whether the progress thread looks again by itself, without a pause: who has made a source
  // pending before it asked need not wake it.
  bool looks() const noexcept { return looks_.load(); }
  // The same, or within a millisecond: enough for what nobody hears of but who polls.
  bool looks_soon() const noexcept { return looks_.load() || looks_later_.load(); }
  // One more of many was begun. While they are begun one after the other, and nobody sleeps, the
  // progress thread keeps out of the way: it would take every cache line of theirs in turn, and who
  // begins them, or waits for them, finds what has ended by itself.
  void note_begun() noexcept { begun_.fetch_add(1, std::memory_order_relaxed); }
  // The progress thread has ended: polls until no source has anything to do.
  void finish_sources(const Deadline& deadline) noexcept;

  // Wakes sleeping waiters: call it after every change that makes a waiter's ready() true.
  void wake() noexcept;
  // What waits without a thread; null: nothing does. From its first wait on it is counted among the
  // sleepers: behind that, arm_for_sleepers() as a caller does who sleeps.
  AsyncWaits* waits() const noexcept { return waits_.get(); }
  void arm_for_sleepers() noexcept;

  // For the progress thread. serve() delivers completions unless callers poll, and returns how long
  // the thread may sleep before it must look again, even when every event_fd() stays silent.
  int event_fd(RailIndex rail) const noexcept { return shares_[rail].queue->event_fd(); }
  // Takes the events that made event_fd() readable. 0, or the errno for which none will come again.
  [[nodiscard]] int consume_events(RailIndex rail) noexcept {
    return shares_[rail].queue->consume_events();
  }
  std::chrono::milliseconds serve() noexcept;
  // The call that the rail's device refuses, for good; null: none.
  const char* failed_call(RailIndex rail) const noexcept {
    return shares_[rail].failed_call.load();
  }

 private:
  static constexpr std::chrono::milliseconds kWhilePolled{1};
  static constexpr std::chrono::milliseconds kForever{1000};
  // How long waiters poll while a source has something to do: a GPU copies more than a GiB in that
  // time, and to sleep and be woken takes a hundredth of it.
  static constexpr std::chrono::milliseconds kSourceSpin{5};
  // How long the progress thread looks on when no source is pending any more: the next copy of a
  // program that makes one after the other then costs it no system call.
  static constexpr std::chrono::microseconds kLinger{100};
  // Of the progress thread, while work is begun one after the other.
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

  // What belongs to one rail. Numbers of queue pairs are a device's own.
  struct Share {
    std::shared_ptr<rdma::CompletionQueue> queue;
    std::unordered_map<std::uint32_t, std::shared_ptr<CompletionSink>> sinks;
    std::shared_ptr<CompletionSink> pool;
    int reserved = 0;
    std::atomic<bool> retired{false};
    std::atomic<const char*> failed_call{nullptr};
  };

  std::chrono::milliseconds serve_queues() noexcept;
  void poll_sources() noexcept;
  bool sources_pending() noexcept;
  std::chrono::milliseconds look_on() noexcept;
  bool drain() noexcept;
  static bool drain(Share& share) noexcept;
  static void reserve(Share& share, int entries);
  bool arm() noexcept;  // false: some queue refuses
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
      sources_mutex_;  // guards the next; outside of every lock but the callers'
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
  std::optional<Deadline::Clock::time_point> source_until;  // once it is asked for
  SpinWait spin(spin_, deadline.at(), &learned_);
  const auto source_may_end = [&] {
    if (!sources_pending()) return false;
    const auto now = Deadline::Clock::now();
    if (!source_until) source_until = std::min(now + kSourceSpin, deadline.at());
    return now < *source_until;
  };
  do {
    // Neighbours first: what they put is there while a device would still be asked.
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
  // Counted, and the wake-ups read, before ready() is asked; wake() reads the count after the
  // change was made: one of the two sees the other (all of it is sequentially consistent).
  const Sleeper counted(*sleepers_);
  for (;;) {
    const std::uint64_t seen = wakeups_.load();
    // What completed between the last poll and the arming would otherwise wait for the next event.
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
