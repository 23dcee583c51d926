// Memory that a queue pair needs only in the middle of a frame; an idle one has none. The process
// keeps a few returned ones for the next users.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <new>

namespace zerohop::softhca {

template <typename T>
class Borrowed {
 public:
  // False: out of memory.
  bool take() noexcept {
    for (auto spare = spares_.begin(); !held_ && spare != spares_.end(); ++spare) {
      held_.reset(spare->exchange(nullptr, std::memory_order_acquire));
    }
    if (!held_) held_.reset(new (std::nothrow) T);
    return held_ != nullptr;
  }
  void give_back() noexcept {
    for (auto& spare : spares_) {
      T* none = nullptr;
      if (!spare.compare_exchange_strong(none, held_.get(), std::memory_order_release,
                                         std::memory_order_relaxed)) {
        continue;
      }
      static_cast<void>(held_.release());
      return;
    }
    held_.reset();
  }

  T* operator->() const noexcept { return held_.get(); }

 private:
  // Enough for the threads that poll at a time. They live as long as the process.
  inline static std::array<std::atomic<T*>, 4> spares_{};
  std::unique_ptr<T> held_;
};

}  // namespace zerohop::softhca
