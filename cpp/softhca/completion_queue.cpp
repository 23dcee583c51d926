#include "softhca/completion_queue.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

#include "softhca/completion_channel.hpp"
#include "softhca/context.hpp"
#include "softhca/device.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {

CompletionQueue::CompletionQueue(ibv_context* device, int depth, void* user_context,
                                 ibv_comp_channel* reports_to)
    : ibv_cq{}, ring_(new ibv_wc[std::bit_ceil(static_cast<unsigned>(depth))]) {
  context = device;
  channel = reports_to;
  cq_context = user_context;
  cqe = depth;
  mask_ = std::bit_ceil(static_cast<unsigned>(depth)) - 1;
  ::pthread_mutex_init(&mutex, nullptr);
  ::pthread_cond_init(&cond, nullptr);
}

CompletionQueue::~CompletionQueue() {
  ::pthread_cond_destroy(&cond);
  ::pthread_mutex_destroy(&mutex);
}

bool CompletionQueue::push(const ibv_wc& completion, bool solicited) noexcept {
  std::lock_guard guard(mutex_);
  if (overrun_ || !store(completion)) {
    if (!overrun_) Context::of(context).events.raise(IBV_EVENT_CQ_ERR, this);
    overrun_ = true;
    return false;
  }
  const bool counts = solicited || completion.status != IBV_WC_SUCCESS;
  if (armed_ == Armed::any || (armed_ == Armed::solicited && counts)) {
    armed_ = Armed::no;
    Context::of(context).progress.disarmed();
    if (channel != nullptr) CompletionChannel::of(channel).push(*this);
  }
  return true;
}

bool CompletionQueue::store(const ibv_wc& completion) noexcept {
  if (direct_ != nullptr) return direct_->push(completion);
  if (tail_ - head_ == static_cast<std::uint32_t>(cqe)) return false;
  ring_[tail_++ & mask_] = completion;
  filled_.store(true, std::memory_order_release);
  return true;
}

int CompletionQueue::take(int most, ibv_wc* completions) noexcept {
  if (!filled_.load(std::memory_order_acquire)) return 0;
  std::lock_guard guard(mutex_);
  if (direct_ != nullptr) return -1;
  const int count = std::min(most, static_cast<int>(tail_ - head_));
  for (int i = 0; i < count; ++i) completions[i] = ring_[head_++ & mask_];
  if (head_ == tail_ && overrun_) return count > 0 ? count : -1;
  if (head_ == tail_) filled_.store(false, std::memory_order_relaxed);
  return count;
}

int CompletionQueue::arm(bool solicited_only) noexcept {
  std::lock_guard guard(mutex_);
  if (armed_ == Armed::no) Context::of(context).progress.armed();
  // A solicited-only request does not narrow an earlier arming for any completion (IBA 11.4.2.2).
  if (armed_ != Armed::any) armed_ = solicited_only ? Armed::solicited : Armed::any;
  return 0;
}

int CompletionQueue::resize(int depth) noexcept {
  const std::uint32_t size = std::bit_ceil(static_cast<unsigned>(depth));
  std::unique_ptr<ibv_wc[]> ring(new (std::nothrow) ibv_wc[size]);
  if (!ring) return ENOMEM;
  std::lock_guard guard(mutex_);
  if (direct_ != nullptr || tail_ - head_ > static_cast<std::uint32_t>(depth)) return EINVAL;
  for (std::uint32_t at = head_; at != tail_; ++at) ring[at & (size - 1)] = ring_[at & mask_];
  ring_ = std::move(ring);
  mask_ = size - 1;
  cqe = depth;
  return 0;
}

void CompletionQueue::purge(std::uint32_t qp_number) noexcept {
  std::lock_guard guard(mutex_);
  std::uint32_t kept = head_;
  for (std::uint32_t at = head_; at != tail_; ++at) {
    if (ring_[at & mask_].qp_num != qp_number) ring_[kept++ & mask_] = ring_[at & mask_];
  }
  tail_ = kept;
}

int CompletionQueue::make_direct(std::unique_ptr<DirectCompletions> ring, bool this_one) noexcept {
  std::lock_guard guard(mutex_);
  if (direct_ != nullptr) return this_one ? EBUSY : 0;
  if (head_ != tail_ || overrun_) return EBUSY;
  direct_ = std::move(ring);
  filled_.store(true, std::memory_order_release);  // makes take() look and fail
  return 0;
}

void CompletionQueue::describe(mlx5dv_cq& out) noexcept {
  std::lock_guard guard(mutex_);
  direct_->describe(out);
}

QueuePair* CompletionQueue::lock_hot() noexcept {
  std::lock_guard guard(mutex_);  // blocks forget() while the pointer is used
  QueuePair* qp = hot_.load(std::memory_order_relaxed);
  // try_lock: the usual order is queue pair first, completion queue second.
  return qp != nullptr && qp->lock.try_lock() ? qp : nullptr;
}

void CompletionQueue::forget(QueuePair& qp) noexcept {
  std::lock_guard guard(mutex_);
  if (hot_.load(std::memory_order_relaxed) == &qp) hot_.store(nullptr, std::memory_order_relaxed);
}

void CompletionQueue::retire() noexcept {
  Context& device = Context::of(context);
  {
    std::lock_guard guard(mutex_);
    if (armed_ != Armed::no) device.progress.disarmed();
    armed_ = Armed::no;
  }
  if (channel != nullptr) CompletionChannel::of(channel).forget(*this);
  device.events.forget(this);
  ::pthread_mutex_lock(&mutex);
  while (comp_events_completed != taken_events || async_events_completed != async_events_taken) {
    ::pthread_cond_wait(&cond, &mutex);
  }
  ::pthread_mutex_unlock(&mutex);
}

ibv_cq* create_cq(ibv_context* handle, int depth, void* cq_context, ibv_comp_channel* channel,
                  int vector) {
  Context& context = Context::of(handle);
  errno = ENOMEM;
  if (const int obstacle = context.obstacle(); obstacle != 0) errno = obstacle;
  if (depth < 1 || depth > limits::kCompletions || vector < 0 ||
      vector >= handle->num_comp_vectors || (channel != nullptr && channel->context != handle)) {
    errno = EINVAL;
  }
  if (errno != ENOMEM || !context.faults.has_room_for_cq(context.completion_queues.load())) {
    return nullptr;
  }
  try {
    auto* cq = new CompletionQueue(handle, depth, cq_context, channel);
    context.completion_queues.fetch_add(1, std::memory_order_relaxed);
    context.users.fetch_add(1, std::memory_order_relaxed);
    if (channel != nullptr) CompletionChannel::of(channel).users.fetch_add(1);
    return cq;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

int resize_cq(ibv_cq* cq, int depth) {
  if (Context::of(cq->context).forked()) return ENODEV;
  if (depth < 1 || depth > limits::kCompletions) return EINVAL;
  return CompletionQueue::of(cq).resize(depth);
}

int destroy_cq(ibv_cq* handle) {
  Context& context = Context::of(handle->context);
  if (context.forked()) return 0;
  CompletionQueue& cq = CompletionQueue::of(handle);
  if (cq.users.load() != 0) return EBUSY;
  cq.retire();
  if (cq.channel != nullptr) CompletionChannel::of(cq.channel).users.fetch_sub(1);
  delete &cq;
  context.completion_queues.fetch_sub(1, std::memory_order_relaxed);
  context.users.fetch_sub(1, std::memory_order_relaxed);
  return 0;
}

int poll_cq(ibv_cq* handle, int most, ibv_wc* completions) {
  Context& context = Context::of(handle->context);
  if (context.forked() || most < 0) return -1;
  CompletionQueue& cq = CompletionQueue::of(handle);
  const int found = cq.take(most, completions);
  if (found != 0 || most == 0) return found;
  context.progress.poll(cq);
  return cq.take(most, completions);
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  if (Context::of(cq->context).forked()) return ENODEV;
  return CompletionQueue::of(cq).arm(solicited_only != 0);
}

}  // namespace zerohop::softhca
