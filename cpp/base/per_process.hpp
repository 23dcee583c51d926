// Per-process state where fork(2) copies everything: a child must not take a lock that a thread of
// its parent may have held, nor destroy what the parent's threads use.
#pragma once

#include <atomic>

#include "base/fork.hpp"

namespace zerohop {

// One T per process, created at its first use and never destroyed: threads may outlive main(). A
// child gets a fresh one and leaves the parent's untouched.
template <typename T>
class PerProcess {
 public:
  T& get() {
    Made* known = made_.load(std::memory_order_acquire);
    if (known && known->generation == fork_generation()) return known->value;
    auto* const fresh = new Made{.generation = fork_generation(), .value = {}};
    if (made_.compare_exchange_strong(known, fresh, std::memory_order_acq_rel)) {
      return fresh->value;
    }
    delete fresh;  // another thread was faster
    return known->value;
  }

 private:
  struct Made {
    unsigned generation;
    T value;
  };
  std::atomic<Made*> made_{nullptr};
};

}  // namespace zerohop
