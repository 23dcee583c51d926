#include "softhca/completion_channel.hpp"

#include <cerrno>

#include "base/error.hpp"
#include "softhca/completion_queue.hpp"
#include "softhca/context.hpp"

namespace zerohop::softhca {

CompletionChannel::CompletionChannel(ibv_context* device) : ibv_comp_channel{} {
  context = device;
  fd = counter_.fd();
}

void CompletionChannel::push(CompletionQueue& queue) noexcept {
  std::lock_guard guard(mutex_);
  if (queue.untaken_events++ == 0) {
    queue.next_in_channel = nullptr;
    (last_ != nullptr ? last_->next_in_channel : first_) = &queue;
    last_ = &queue;
  }
  counter_.add();
}

CompletionQueue* CompletionChannel::take(int& error) noexcept {
  for (;;) {
    error = counter_.take();
    if (error != 0) return nullptr;
    std::lock_guard guard(mutex_);
    CompletionQueue* queue = first_;
    if (queue == nullptr) continue;  // withdrawn between the read and the lock
    if (--queue->untaken_events == 0) {
      first_ = queue->next_in_channel;
      if (first_ == nullptr) last_ = nullptr;
    }
    ++queue->taken_events;
    return queue;
  }
}

void CompletionChannel::forget(CompletionQueue& queue) noexcept {
  std::lock_guard guard(mutex_);
  if (queue.untaken_events == 0) return;
  CompletionQueue* before = nullptr;
  for (CompletionQueue* at = first_; at != &queue; at = at->next_in_channel) before = at;
  (before != nullptr ? before->next_in_channel : first_) = queue.next_in_channel;
  if (last_ == &queue) last_ = before;
  for (; queue.untaken_events > 0; --queue.untaken_events) counter_.withdraw();
}

ibv_comp_channel* create_comp_channel(ibv_context* handle) {
  Context& context = Context::of(handle);
  if (context.forked()) {
    errno = ENODEV;
    return nullptr;
  }
  try {
    auto* channel = new CompletionChannel(handle);
    context.users.fetch_add(1, std::memory_order_relaxed);
    return channel;
  } catch (const Error& error) {
    errno = error.code();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  return nullptr;
}

int destroy_comp_channel(ibv_comp_channel* handle) {
  Context& context = Context::of(handle->context);
  if (context.forked()) return 0;
  CompletionChannel& channel = CompletionChannel::of(handle);
  if (channel.users.load(std::memory_order_relaxed) != 0) return EBUSY;
  delete &channel;
  context.users.fetch_sub(1, std::memory_order_relaxed);
  return 0;
}

int get_cq_event(ibv_comp_channel* handle, ibv_cq** cq, void** cq_context) {
  int error = ENODEV;
  CompletionQueue* queue = nullptr;
  if (!Context::of(handle->context).forked()) queue = CompletionChannel::of(handle).take(error);
  if (queue == nullptr) {
    errno = error;
    return -1;
  }
  *cq = queue;
  *cq_context = queue->cq_context;
  return 0;
}

void ack_cq_events(ibv_cq* cq, unsigned int count) {
  if (Context::of(cq->context).forked()) return;
  ::pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  ::pthread_cond_signal(&cq->cond);
  ::pthread_mutex_unlock(&cq->mutex);
}

}  // namespace zerohop::softhca
