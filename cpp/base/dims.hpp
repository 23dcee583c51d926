// A short list of 64-bit dimensions or strides. Allocates only beyond eight entries.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>

namespace zerohop {

class Dims {
 public:
  // numpy and torch stop at 64; no array met in practice has more than 32.
  static constexpr std::size_t kMax = 32;

  Dims() noexcept {}
  Dims(std::initializer_list<std::int64_t> values) { assign({values.begin(), values.size()}); }
  explicit Dims(std::span<const std::int64_t> values) { assign(values); }
  // `size` entries of value 0. Throws std::invalid_argument beyond kMax.
  static Dims zeros(std::size_t size);

  Dims(const Dims& other) { assign(other.span()); }
  Dims& operator=(const Dims& other) {
    if (this != &other) assign(other.span());
    return *this;
  }
  Dims(Dims&& other) noexcept { take(other); }
  Dims& operator=(Dims&& other) noexcept {
    if (this != &other) take(other);
    return *this;
  }
  ~Dims() = default;

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::int64_t* data() noexcept { return heap_ ? heap_.get() : inline_.data(); }
  const std::int64_t* data() const noexcept { return heap_ ? heap_.get() : inline_.data(); }
  std::int64_t& operator[](std::size_t i) noexcept { return data()[i]; }
  std::int64_t operator[](std::size_t i) const noexcept { return data()[i]; }
  const std::int64_t* begin() const noexcept { return data(); }
  const std::int64_t* end() const noexcept { return data() + size_; }
  std::span<const std::int64_t> span() const noexcept { return {data(), size_}; }

  // Throws std::invalid_argument beyond kMax.
  void push_back(std::int64_t value);

  friend bool operator==(const Dims& a, const Dims& b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  static constexpr std::size_t kInline = 8;

  void resize(std::size_t size);
  void assign(std::span<const std::int64_t> values) {
    resize(values.size());
    std::copy(values.begin(), values.end(), data());
  }
  void take(Dims& other) noexcept {
    size_ = other.size_;
    heap_ = std::move(other.heap_);
    if (!heap_) std::copy_n(other.inline_.data(), size_, inline_.data());
    other.size_ = 0;
  }

  std::size_t size_ = 0;
  std::unique_ptr<std::int64_t[]> heap_;      // kMax entries once size_ exceeds kInline
  std::array<std::int64_t, kInline> inline_;  // only the first size_ entries are initialized
};

}  // namespace zerohop
