// Moves the bytes of one device context: callers of poll_cq do while they poll, otherwise a thread.
//
// The thread watches the sockets and serves them, so a target that never polls is served. As long
// as there is work, it polls for more before it sleeps. If it sees that a caller polls, it steps
// back and checks again every half millisecond: two threads on one message cost more than they
// gain. Arming a completion queue calls it back at once, as its owner is about to sleep.
//
// Only the thread polls the doorbells of direct queue pairs (doorbells.hpp): without pause for a
// while after one was rung, otherwise at a bounded interval.
#pragma once

#include <atomic>
#include <thread>

#include "base/bell.hpp"
#include "base/locks.hpp"
#include "softhca/epoll.hpp"
#include "softhca/timers.hpp"

namespace zerohop::softhca {

class CompletionQueue;
class Context;
class QueuePair;

class Progress final : public Watched {
 public:
  explicit Progress(Context& context);  // throws Error
  void start();
  void stop() noexcept;

  // One step for the caller of an empty poll_cq: serves the hot queue pair of `cq`, and
  // occasionally all others.
  void poll(CompletionQueue& cq) noexcept;

  // A post sent everything: its caller is active and will poll soon.
  void posted() noexcept;

  // Whether poll_cq drives the current sweep. Read with Context::control held.
  bool sweep_is_polled() const noexcept { return sweep_is_polled_; }

  // A direct queue pair exists: the thread must not sleep indefinitely any more.
  void watch_doorbells() noexcept { wake_.ring(); }

  // A completion queue was armed, or fired, or was destroyed.
  void armed() noexcept;
  void disarmed() noexcept { armed_.fetch_sub(1, std::memory_order_relaxed); }

  // `qp` owes its peer an acknowledgement that may travel with the next data; otherwise a sweep
  // sends it. Called with the queue pair's lock held.
  void acknowledge_later(QueuePair& qp) noexcept;
  void forget(QueuePair& qp) noexcept;

  void on_ready(std::uint32_t ready) noexcept override;  // only to leave Epoll::wait

 private:
  void run() noexcept;
  bool is_recent(const std::atomic<std::int64_t>& time) const noexcept;
  bool somebody_drives() const noexcept;
  bool answer_doorbells() noexcept;
  void step_back() noexcept;
  void watch(Epoll::Batch& batch) noexcept;
  bool spin(Epoll::Batch& batch) noexcept;
  void sweep(const Epoll::Batch& batch, bool polled) noexcept;
  void send_late_acknowledgements() noexcept;

  Context& context_;
  Bell wake_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> watching_{false};       // the thread is in Epoll::wait, or about to be
  std::atomic<int> armed_{0};               // number of armed completion queues
  std::atomic<std::int64_t> last_poll_{0};  // Clock, in nanoseconds
  std::atomic<std::int64_t> last_post_{0};  // ... of a post that sent everything
  std::atomic<std::int64_t> last_sweep_{0};
  std::atomic<std::int64_t> last_ring_{0};  // ... of a doorbell
  std::atomic<unsigned> sweep_every_{1};    // empty polls
  std::atomic<bool> busy_{false};           // the last sweep found work: look again soon
  bool sweep_is_polled_ = false;            // guarded by Context::control

  Mutex<Rank::softhca_progress> mutex_;  // a leaf
  Condition called_back_;
  std::atomic<bool> stepped_back_{false};
  QueuePair* late_ = nullptr;  // intrusive list, guarded by mutex_
  std::atomic<bool> has_late_{false};
};

}  // namespace zerohop::softhca
