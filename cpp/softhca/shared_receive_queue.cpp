#include "softhca/shared_receive_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <new>

#include "softhca/context.hpp"
#include "softhca/device.hpp"
#include "softhca/protection_domain.hpp"

namespace zerohop::softhca {

SharedReceiveQueue::SharedReceiveQueue(ibv_pd* domain, void* user_context,
                                       const ibv_srq_attr& granted)
    : ibv_srq{}, receives_(granted.max_wr, granted.max_sge) {
  context = domain->context;
  srq_context = user_context;
  pd = domain;
  ::pthread_mutex_init(&mutex, nullptr);
  ::pthread_cond_init(&cond, nullptr);
}

SharedReceiveQueue::~SharedReceiveQueue() {
  ::pthread_cond_destroy(&cond);
  ::pthread_mutex_destroy(&mutex);
}

int SharedReceiveQueue::post(ibv_recv_wr* chain, ibv_recv_wr** bad) noexcept {
  const std::lock_guard guard(mutex_);
  int error = 0;
  for (; chain != nullptr; chain = chain->next) {
    error = receives_.post(*chain);
    if (error != 0) break;
  }
  *bad = chain;
  return error;
}

bool SharedReceiveQueue::take(TakenReceive& taken) noexcept {
  const std::lock_guard guard(mutex_);
  return receives_.take(taken);
}

void SharedReceiveQueue::put_back(const TakenReceive& taken) noexcept {
  const std::lock_guard guard(mutex_);
  ibv_recv_wr request{};
  request.wr_id = taken.entry.wr_id;
  request.sg_list = taken.sges.get();
  request.num_sge = static_cast<int>(taken.entry.sge_count);
  (void)receives_.post(request);  // its place may be taken meanwhile
}

ibv_srq* create_srq(ibv_pd* domain, ibv_srq_init_attr* init) {
  Context& context = Context::of(domain->context);
  ibv_srq_attr granted = init->attr;
  granted.max_wr = std::max(granted.max_wr, 1u);
  granted.max_sge = std::max(granted.max_sge, 1u);
  errno = context.obstacle();
  if (errno == 0 && (granted.max_wr > limits::kWorkRequests || granted.max_sge > limits::kSge)) {
    errno = EINVAL;
  }
  if (errno != 0) return nullptr;
  try {
    auto queue = std::make_unique<SharedReceiveQueue>(domain, init->srq_context, granted);
    ProtectionDomain::of(domain).users.fetch_add(1);
    init->attr = granted;
    return queue.release();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

int destroy_srq(ibv_srq* handle) {
  if (Context::of(handle->context).forked()) return 0;
  SharedReceiveQueue& queue = SharedReceiveQueue::of(handle);
  if (queue.users.load() != 0) return EBUSY;
  ProtectionDomain::of(queue.pd).users.fetch_sub(1);
  delete &queue;
  return 0;
}

int post_srq_recv(ibv_srq* handle, ibv_recv_wr* chain, ibv_recv_wr** bad) {
  *bad = chain;
  if (Context::of(handle->context).forked()) return ENODEV;
  return SharedReceiveQueue::of(handle).post(chain, bad);
}

}  // namespace zerohop::softhca
