// Memory that a queue pair needs only while a frame is half-way: an idle one has none. Each thread
// keeps one that was given back for whoever needs it next.
#pragma once

#include <memory>
#include <new>
#include <utility>

namespace zerohop::softhca {

template <typename T>
class Borrowed {
 public:
  // False: there is no memory.
  bool take() noexcept {
    if (!held_) held_ = std::exchange(spare(), nullptr);
    if (!held_) held_.reset(new (std::nothrow) T);
    return held_ != nullptr;
  }
  void give_back() noexcept {
    if (!spare()) std::swap(spare(), held_);
    held_.reset();
  }
  void drop() noexcept { held_.reset(); }

  T* operator->() const noexcept { return held_.get(); }
  T& operator*() const noexcept { return *held_; }

 private:
  static std::unique_ptr<T>& spare() noexcept {
    static thread_local std::unique_ptr<T> one;
    return one;
  }

  std::unique_ptr<T> held_;
};

}  // namespace zerohop::softhca
