#include "softhca/doorbells.hpp"

#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {

void Doorbells::add(QueuePair& qp) noexcept {
  std::lock_guard guard(mutex_);
  qp.next_direct = first_.load(std::memory_order_relaxed);
  first_.store(&qp, std::memory_order_relaxed);
}

void Doorbells::remove(QueuePair& qp) noexcept {
  std::lock_guard guard(mutex_);
  QueuePair* at = first_.load(std::memory_order_relaxed);
  if (at == &qp) first_.store(qp.next_direct, std::memory_order_relaxed);
  while (at != nullptr && at->next_direct != &qp) at = at->next_direct;
  if (at != nullptr) at->next_direct = qp.next_direct;
}

bool Doorbells::answer() noexcept {
  if (!any()) return false;
  bool rung = false;
  std::lock_guard guard(mutex_);
  QueuePair* qp = first_.load(std::memory_order_relaxed);
  for (; qp != nullptr; qp = qp->next_direct) {
    if (!qp->direct->is_rung()) continue;
    std::lock_guard qp_guard(qp->lock);
    rung |= qp->answer_doorbell();
  }
  return rung;
}

}  // namespace zerohop::softhca
