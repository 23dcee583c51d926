// The asynchronous events of one device context: errors that belong to no work request.
#pragma once

#include <infiniband/verbs.h>

#include <deque>

#include "base/locks.hpp"
#include "softhca/event_counter.hpp"

namespace zerohop::softhca {

class AsyncEvents {
 public:
  int fd() const noexcept { return counter_.fd(); }

  void raise(ibv_event_type type) noexcept;  // about the device itself
  void raise(ibv_event_type type, ibv_qp* qp) noexcept;
  void raise(ibv_event_type type, ibv_cq* cq) noexcept;

  // 0 or errno; blocks as EventCounter::take does. Counts the event in its object's events_taken.
  int take(ibv_async_event& event) noexcept;

  // Withdraws the untaken events of a queue pair or completion queue that is being destroyed.
  void forget(const void* element) noexcept;

 private:
  void push(const ibv_async_event& event) noexcept;

  EventCounter counter_;
  Mutex<Rank::softhca_async_events> mutex_;
  std::deque<ibv_async_event> queued_;
};

// The members of driver::Verbs.
int get_async_event(ibv_context* context, ibv_async_event* event);
void ack_async_event(ibv_async_event* event);

}  // namespace zerohop::softhca
