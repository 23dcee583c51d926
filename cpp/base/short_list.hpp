// A list whose first few members need no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace zerohop {

// Members are contiguous. T must be default-constructible and movable.
template <typename T, std::size_t kFew>
class ShortList {
 public:
  ShortList() = default;
  ~ShortList() = default;
  ShortList(const ShortList&) = delete;
  ShortList& operator=(const ShortList&) = delete;
  ShortList(ShortList&& other) noexcept
      : few_(std::move(other.few_)),
        many_(std::move(other.many_)),
        size_(std::exchange(other.size_, 0)) {}
  ShortList& operator=(ShortList&& other) noexcept {
    few_ = std::move(other.few_);
    many_ = std::move(other.many_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T* begin() noexcept { return size_ > kFew ? many_.data() : few_.data(); }
  T* end() noexcept { return begin() + size_; }
  const T* begin() const noexcept { return size_ > kFew ? many_.data() : few_.data(); }
  const T* end() const noexcept { return begin() + size_; }
  const T& front() const noexcept { return *begin(); }
  const T& back() const noexcept { return *(end() - 1); }
  std::span<const T> span() const noexcept { return {begin(), size_}; }

  void push_back(T value) {
    if (size_ < kFew) {
      few_[size_++] = std::move(value);
      return;
    }
    if (size_ == kFew) {
      many_.reserve(4 * kFew);
      for (T& member : few_) many_.push_back(std::exchange(member, T()));
    }
    many_.push_back(std::move(value));
    ++size_;
  }
  void clear() noexcept {
    for (std::size_t i = 0; i < size_ && i < kFew; ++i) few_[i] = T();
    many_.clear();
    size_ = 0;
  }

 private:
  std::array<T, kFew> few_{};
  std::vector<T> many_;  // all members, once there are more than kFew
  std::size_t size_ = 0;
};

}  // namespace zerohop
