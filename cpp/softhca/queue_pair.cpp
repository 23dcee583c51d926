// Creating, querying and destroying queue pairs.
#include "softhca/queue_pair.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>

#include "base/error.hpp"
#include "base/random.hpp"
#include "softhca/completion_queue.hpp"
#include "softhca/context.hpp"
#include "softhca/protection_domain.hpp"
#include "softhca/shared_receive_queue.hpp"

namespace zerohop::softhca {
namespace {

constexpr std::uint32_t kNumberMask = 0xffffff;  // queue pair numbers have 24 bits
constexpr std::uint32_t kFirstNumber = 2;        // 0 and 1 belong to subnet management

// 0, or the errno for attributes that this device does not support.
int refuse(const ibv_pd* domain, const ibv_qp_init_attr& init) {
  if (init.qp_type != IBV_QPT_RC) return EOPNOTSUPP;
  if (init.send_cq == nullptr || init.recv_cq == nullptr) return EINVAL;
  if (init.send_cq->context != domain->context || init.recv_cq->context != domain->context) {
    return EINVAL;
  }
  // The queue pair's domain checks its elements, so both must have the same domain.
  if (init.srq != nullptr && init.srq->pd != domain) return EINVAL;
  const ibv_qp_cap& cap = init.cap;
  const bool granted = cap.max_send_wr <= limits::kWorkRequests &&
                       cap.max_recv_wr <= limits::kWorkRequests &&
                       cap.max_send_sge <= limits::kSge && cap.max_recv_sge <= limits::kSge &&
                       cap.max_inline_data <= limits::kInlineBytes;
  return granted ? 0 : EINVAL;
}

ibv_qp_init_attr grant(const ibv_qp_init_attr& asked) {
  ibv_qp_init_attr granted = asked;
  granted.cap.max_send_wr = std::max(asked.cap.max_send_wr, 1u);
  granted.cap.max_recv_wr = asked.srq != nullptr ? 0 : std::max(asked.cap.max_recv_wr, 1u);
  granted.cap.max_send_sge = std::max(asked.cap.max_send_sge, 1u);
  granted.cap.max_recv_sge = std::max(asked.cap.max_recv_sge, 1u);
  return granted;
}

std::uint32_t unused_number(const Context& context) {
  for (;;) {
    const std::uint32_t number = random_u32() & kNumberMask;
    if (number >= kFirstNumber && !context.queue_pairs.contains(number)) return number;
  }
}

void count_users(const QueuePair& qp, int change) {
  ProtectionDomain::of(qp.pd).users.fetch_add(change);
  CompletionQueue::of(qp.send_cq).users.fetch_add(change);
  CompletionQueue::of(qp.recv_cq).users.fetch_add(change);
  if (qp.srq != nullptr) SharedReceiveQueue::of(qp.srq).users.fetch_add(change);
}

void wait_for_acknowledged_events(QueuePair& qp) {
  qp.device.events.forget(static_cast<ibv_qp*>(&qp));
  ::pthread_mutex_lock(&qp.mutex);
  while (qp.events_completed != qp.async_events_taken) ::pthread_cond_wait(&qp.cond, &qp.mutex);
  ::pthread_mutex_unlock(&qp.mutex);
}

}  // namespace

QueuePair::QueuePair(Context& owner, ibv_pd* domain, const ibv_qp_init_attr& granted,
                     std::uint32_t number)
    : ibv_qp{},
      device(owner),
      ordinal(owner.queue_pairs_made++),
      init(granted),
      sends(granted.cap.max_send_wr, granted.cap.max_send_sge, granted.cap.max_inline_data),
      receives(granted.cap.max_recv_wr, granted.cap.max_recv_sge),
      taken(granted.srq != nullptr ? SharedReceiveQueue::of(granted.srq).most_sge()
                                   : granted.cap.max_recv_sge),
      requester(*this),
      responder(*this),
      connection(*this),
      faulty(owner.faults.wire_of(*this)) {
  context = &owner;
  qp_context = granted.qp_context;
  pd = domain;
  send_cq = granted.send_cq;
  recv_cq = granted.recv_cq;
  srq = granted.srq;
  handle = qp_num = number;
  state = IBV_QPS_RESET;
  qp_type = IBV_QPT_RC;
  ::pthread_mutex_init(&mutex, nullptr);
  ::pthread_cond_init(&cond, nullptr);
}

QueuePair::~QueuePair() {
  ::pthread_cond_destroy(&cond);
  ::pthread_mutex_destroy(&mutex);
}

ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* init) {
  Context& context = Context::of(domain->context);
  errno = context.obstacle() != 0 ? context.obstacle() : refuse(domain, *init);
  if (errno != 0) return nullptr;
  try {
    const ibv_qp_init_attr granted = grant(*init);
    std::lock_guard guard(context.control);
    if (!context.faults.has_room_for_qp(context.queue_pairs.size())) throw std::bad_alloc();
    const std::uint32_t number = unused_number(context);
    auto qp = std::make_unique<QueuePair>(context, domain, granted, number);
    context.queue_pairs.emplace(number, qp.get());
    count_users(*qp, 1);
    init->cap = granted.cap;
    return qp.release();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  } catch (const Error& error) {
    errno = error.code();
  }
  return nullptr;
}

int query_qp(ibv_qp* handle, ibv_qp_attr* attributes, int, ibv_qp_init_attr* init) {
  QueuePair& qp = QueuePair::of(handle);
  if (qp.device.forked()) return ENODEV;
  std::lock_guard guard(qp.lock);
  *attributes = qp.attributes;
  attributes->qp_state = attributes->cur_qp_state = qp.state;
  attributes->cap = qp.init.cap;
  *init = qp.init;
  return 0;
}

int destroy_qp(ibv_qp* handle) {
  QueuePair& qp = QueuePair::of(handle);
  if (qp.device.forked()) return 0;  // the parent's object; its memory is freed with this process
  {
    std::lock_guard control(qp.device.control);  // no sweep uses it any more
    qp.device.queue_pairs.erase(qp.qp_num);
    qp.device.doorbells.remove(qp);
    std::lock_guard guard(qp.lock);  // nor does a poll or a post
    qp.to_reset();
    CompletionQueue::of(qp.send_cq).forget(qp);
    CompletionQueue::of(qp.recv_cq).forget(qp);
    qp.device.progress.forget(qp);
  }
  wait_for_acknowledged_events(qp);
  count_users(qp, -1);
  delete &qp;
  return 0;
}

}  // namespace zerohop::softhca
