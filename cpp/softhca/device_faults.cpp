#include "softhca/device_faults.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "softhca/context.hpp"
#include "softhca/faulty_wire.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {

DeviceFaults::~DeviceFaults() { context_.timers.cancel(*this); }

void DeviceFaults::set(const Faults& faults) {
  std::lock_guard control(context_.control);
  std::vector<std::pair<QueuePair*, std::unique_ptr<FaultyWire>>> fresh;
  if (faults.on_queue_pairs()) {
    for (const auto& [number, qp] : context_.queue_pairs) {
      std::lock_guard guard(qp->lock);
      if (qp->faulty) continue;
      fresh.emplace_back(qp, std::make_unique<FaultyWire>(*qp, *this, faults));
    }
  }
  faults_ = faults;
  left_.store(faults.remove);
  max_qp_.store(faults.max_qp);
  max_cq_.store(faults.max_cq);
  max_mr_.store(faults.max_mr);
  for (auto& [qp, wire] : fresh) {
    std::lock_guard guard(qp->lock);
    qp->faulty = std::move(wire);
  }
  for (const auto& [number, qp] : context_.queue_pairs) {
    std::lock_guard guard(qp->lock);
    if (qp->faulty) qp->faulty->change(faults);
  }
}

std::unique_ptr<FaultyWire> DeviceFaults::wire_of(QueuePair& qp) {
  if (!faults_.on_queue_pairs()) return nullptr;
  return std::make_unique<FaultyWire>(qp, *this, faults_);
}

void DeviceFaults::limit(ibv_device_attr& attributes) const noexcept {
  const auto lower = [](int& most, const Limit& limit) {
    const std::uint64_t value = limit.load(std::memory_order_relaxed);
    if (value != 0)
      most = static_cast<int>(std::min<std::uint64_t>(value, static_cast<unsigned>(most)));
  };
  lower(attributes.max_qp, max_qp_);
  lower(attributes.max_cq, max_cq_);
  lower(attributes.max_mr, max_mr_);
}

bool DeviceFaults::posted() noexcept {
  std::uint64_t left = left_.load(std::memory_order_relaxed);
  while (left > 0 && !left_.compare_exchange_weak(left, left - 1)) {
  }
  if (left != 1) return false;
  context_.timers.set(*this, Clock::now());
  return true;
}

void DeviceFaults::on_time() noexcept {
  if (gone_.exchange(true)) return;
  for (const auto& [number, qp] : context_.queue_pairs) {
    std::lock_guard guard(qp->lock);
    if (qp->state != IBV_QPS_RESET) qp->to_error();
  }
  context_.events.raise(IBV_EVENT_DEVICE_FATAL);
}

void set_faults(ibv_context* context, const Faults& faults) {
  Context::of(context).faults.set(faults);
}

std::shared_ptr<const FaultCounts> fault_counts(ibv_context* context) noexcept {
  return Context::of(context).faults.counts;
}

}  // namespace zerohop::softhca
