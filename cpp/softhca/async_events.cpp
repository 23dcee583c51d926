#include "softhca/async_events.hpp"

#include <cerrno>

#include "softhca/completion_queue.hpp"
#include "softhca/context.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {
namespace {

const void* element_of(const ibv_async_event& event) {
  if (event.event_type == IBV_EVENT_DEVICE_FATAL) return nullptr;
  if (event.event_type == IBV_EVENT_CQ_ERR) return event.element.cq;
  return event.element.qp;
}

}  // namespace

void AsyncEvents::raise(ibv_event_type type) noexcept {
  ibv_async_event event{};
  event.event_type = type;
  push(event);
}

void AsyncEvents::raise(ibv_event_type type, ibv_qp* qp) noexcept {
  ibv_async_event event{};
  event.element.qp = qp;
  event.event_type = type;
  push(event);
}

void AsyncEvents::raise(ibv_event_type type, ibv_cq* cq) noexcept {
  ibv_async_event event{};
  event.element.cq = cq;
  event.event_type = type;
  push(event);
}

void AsyncEvents::push(const ibv_async_event& event) noexcept {
  std::lock_guard guard(mutex_);
  try {
    queued_.push_back(event);
  } catch (const std::bad_alloc&) {
    return;  // completions report the error itself; the event only announces it
  }
  counter_.add();
}

int AsyncEvents::take(ibv_async_event& event) noexcept {
  for (;;) {
    if (const int error = counter_.take(); error != 0) return error;
    std::lock_guard guard(mutex_);
    if (queued_.empty()) continue;  // withdrawn between the read and the lock
    event = queued_.front();
    queued_.pop_front();
    if (event.event_type == IBV_EVENT_CQ_ERR) {
      ++CompletionQueue::of(event.element.cq).async_events_taken;
    } else if (event.event_type != IBV_EVENT_DEVICE_FATAL) {
      ++QueuePair::of(event.element.qp).async_events_taken;
    }
    return 0;
  }
}

void AsyncEvents::forget(const void* element) noexcept {
  std::lock_guard guard(mutex_);
  const auto withdrawn =
      std::erase_if(queued_, [element](const auto& event) { return element_of(event) == element; });
  for (std::size_t i = 0; i < withdrawn; ++i) counter_.withdraw();
}

int get_async_event(ibv_context* handle, ibv_async_event* event) {
  Context& context = Context::of(handle);
  const int error = context.forked() ? ENODEV : context.events.take(*event);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

void ack_async_event(ibv_async_event* event) {
  if (event->event_type == IBV_EVENT_CQ_ERR) {
    ibv_cq* cq = event->element.cq;
    if (Context::of(cq->context).forked()) return;
    ::pthread_mutex_lock(&cq->mutex);
    ++cq->async_events_completed;
    ::pthread_cond_signal(&cq->cond);
    ::pthread_mutex_unlock(&cq->mutex);
  } else if (event->event_type != IBV_EVENT_DEVICE_FATAL) {
    ibv_qp* qp = event->element.qp;
    if (Context::of(qp->context).forked()) return;
    ::pthread_mutex_lock(&qp->mutex);
    ++qp->events_completed;
    ::pthread_cond_signal(&qp->cond);
    ::pthread_mutex_unlock(&qp->mutex);
  }
}

}  // namespace zerohop::softhca
