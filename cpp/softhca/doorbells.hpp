// The direct queue pairs of a context. Writing their doorbells wakes no thread, so they must be
// polled.
#pragma once

#include <atomic>

#include "base/locks.hpp"

namespace zerohop::softhca {

class QueuePair;

class Doorbells {
 public:
  void add(QueuePair& qp) noexcept;     // must be direct
  void remove(QueuePair& qp) noexcept;  // no effect if absent

  bool any() const noexcept { return first_.load(std::memory_order_relaxed) != nullptr; }

  // Posts what was announced since the last call. Returns whether any doorbell was rung.
  bool answer() noexcept;

 private:
  Mutex<Rank::softhca_doorbells> mutex_;    // before QueuePair::lock
  std::atomic<QueuePair*> first_{nullptr};  // intrusive list; written under mutex_
};

}  // namespace zerohop::softhca
