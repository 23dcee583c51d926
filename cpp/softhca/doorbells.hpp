// The direct queue pairs of a context. Nothing wakes a thread when their doorbells are written, so
// somebody must look at them again and again.
#pragma once

#include <atomic>

#include "base/locks.hpp"

namespace zerohop::softhca {

class QueuePair;

class Doorbells {
 public:
  void add(QueuePair& qp) noexcept;     // one that is direct
  void remove(QueuePair& qp) noexcept;  // nothing happens for one that is not there

  bool any() const noexcept { return first_.load(std::memory_order_relaxed) != nullptr; }

  // Posts what was announced since the last call. Whether any doorbell was rung.
  bool answer() noexcept;

 private:
  Mutex<Rank::softhca_doorbells> mutex_;    // before QueuePair::lock
  std::atomic<QueuePair*> first_{nullptr};  // intrusive list; written under mutex_
};

}  // namespace zerohop::softhca
