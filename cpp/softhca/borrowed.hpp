// Memory that a queue pair needs only in the middle of a frame; an idle one has none. The process
// keeps one returned buffer for the next user.
#pragma once

#include <atomic>
#include <memory>
#include <new>

namespace zerohop::softhca {

template <typename T>
class Borrowed {
 public:
  // False: out of memory.
  bool take() noexcept {
    if (!held_) held_.reset(spare_.exchange(nullptr, std::memory_order_acquire));
    if (!held_) held_.reset(new (std::nothrow) T);
    return held_ != nullptr;
  }
  void give_back() noexcept {
    T* none = nullptr;
    if (spare_.compare_exchange_strong(none, held_.get(), std::memory_order_release,
                                       std::memory_order_relaxed)) {
      static_cast<void>(held_.release());
    } else {
      held_.reset();
    }
  }

  T* operator->() const noexcept { return held_.get(); }

 private:
  inline static std::atomic<T*> spare_{nullptr};  // lives as long as the process
  std::unique_ptr<T> held_;
};

}  // namespace zerohop::softhca
