// A completion event channel: a queue of completion queues that had a completion while armed.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>

#include "base/locks.hpp"
#include "softhca/event_counter.hpp"

namespace zerohop::softhca {

class CompletionQueue;

class CompletionChannel : public ibv_comp_channel {
 public:
  explicit CompletionChannel(ibv_context* device);
  static CompletionChannel& of(ibv_comp_channel* channel) noexcept {
    return *static_cast<CompletionChannel*>(channel);
  }

  void push(CompletionQueue& queue) noexcept;    // the caller holds the lock of `queue`
  CompletionQueue* take(int& error) noexcept;    // null with errno in `error`
  void forget(CompletionQueue& queue) noexcept;  // withdraws its untaken events

  std::atomic<int> users{0};  // completion queues that use this channel

 private:
  EventCounter counter_;
  Mutex<Rank::softhca_completion_channel> mutex_;
  CompletionQueue* first_ = nullptr;  // intrusive: a push must not allocate
  CompletionQueue* last_ = nullptr;
};

// The members of driver::Verbs.
ibv_comp_channel* create_comp_channel(ibv_context* context);
int destroy_comp_channel(ibv_comp_channel* channel);
int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
void ack_cq_events(ibv_cq* cq, unsigned int count);

}  // namespace zerohop::softhca
