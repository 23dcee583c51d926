// A completion queue: a ring of work completions that wakes its channel when armed.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>

#include "base/locks.hpp"
#include "softhca/direct_completions.hpp"

namespace zerohop::softhca {

class CompletionChannel;
class QueuePair;

class CompletionQueue : public ibv_cq {
 public:
  CompletionQueue(ibv_context* device, int depth, void* user_context, ibv_comp_channel* reports_to);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;
  static CompletionQueue& of(ibv_cq* cq) noexcept { return *static_cast<CompletionQueue*>(cq); }

  // Adds one completion. False if the ring is full: the queue has overrun and stays broken. A
  // completion with an error counts as solicited.
  bool push(const ibv_wc& completion, bool solicited) noexcept;

  bool filled() const noexcept { return filled_.load(std::memory_order_relaxed); }
  int take(int most, ibv_wc* completions) noexcept;  // how many; -1 once an overrun queue is empty
  int arm(bool solicited_only) noexcept;             // 0 or errno
  int resize(int depth) noexcept;                    // 0 or errno
  void purge(std::uint32_t qp_number) noexcept;      // completions of a queue pair that was reset

  // Directs completions to `ring` from now on, and no longer to take(). Returns 0 or errno; if
  // another ring is already in use, 0 unless it must be `this_one`.
  int make_direct(std::unique_ptr<DirectCompletions> ring, bool this_one) noexcept;
  void describe(mlx5dv_cq& out) noexcept;  // requires a direct queue

  // The queue pair that poll_cq serves first: the one last active on this completion queue.
  void set_hot(QueuePair& qp) noexcept {
    if (hot_.load(std::memory_order_relaxed) != &qp) hot_.store(&qp, std::memory_order_relaxed);
  }
  // The hot queue pair with its lock taken; null if there is none or another thread serves it.
  QueuePair* lock_hot() noexcept;
  void forget(QueuePair& qp) noexcept;

  // Before destruction: withdraws untaken events and waits until taken ones are acknowledged (man
  // ibv_destroy_cq).
  void retire() noexcept;

  std::atomic<int> users{0};       // queue pairs that use this queue
  std::atomic<unsigned> polls{0};  // polls that found the ring empty

  // Guarded by the channel's lock.
  unsigned untaken_events = 0;  // queued in the channel
  unsigned taken_events = 0;    // handed out by get_cq_event
  CompletionQueue* next_in_channel = nullptr;

  unsigned async_events_taken = 0;  // guarded by the lock of the context's AsyncEvents

 private:
  enum class Armed { no, solicited, any };

  bool store(const ibv_wc& completion) noexcept;

  Mutex<Rank::softhca_completion_queue>
      mutex_;  // taken after a queue pair's lock, before the channel's
  std::unique_ptr<ibv_wc[]> ring_;
  std::unique_ptr<DirectCompletions> direct_;  // null unless direct; then ring_ stays empty
  std::uint32_t mask_ = 0;                     // of the ring, whose size is a power of two >= cqe
  std::uint32_t head_ = 0;                     // of the oldest completion; counts up without bound
  std::uint32_t tail_ = 0;
  std::atomic<bool> filled_{false};  // lets an empty poll return without the lock
  Armed armed_ = Armed::no;
  bool overrun_ = false;
  std::atomic<QueuePair*> hot_{nullptr};
};

// The members of driver::Verbs, and the entries of ibv_context_ops.
ibv_cq* create_cq(ibv_context* context, int depth, void* cq_context, ibv_comp_channel* channel,
                  int vector);
int resize_cq(ibv_cq* cq, int depth);
int destroy_cq(ibv_cq* cq);
int poll_cq(ibv_cq* cq, int most, ibv_wc* completions);
int req_notify_cq(ibv_cq* cq, int solicited_only);

}  // namespace zerohop::softhca
