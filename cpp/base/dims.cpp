#include "base/dims.hpp"

#include <stdexcept>
#include <string>

namespace zerohop {

Dims Dims::zeros(std::size_t size) {
  Dims dims;
  dims.resize(size);
  std::fill_n(dims.data(), size, 0);
  return dims;
}

void Dims::push_back(std::int64_t value) {
  resize(size_ + 1);
  data()[size_ - 1] = value;
}

// Keeps the first entries; new ones are uninitialized.
void Dims::resize(std::size_t size) {
  if (size > kMax) {
    throw std::invalid_argument("an array of " + std::to_string(size) + " dimensions exceeds the " +
                                std::to_string(kMax) + " that zerohop handles; reshape it");
  }
  if (size > kInline && !heap_) {
    auto heap = std::make_unique_for_overwrite<std::int64_t[]>(kMax);
    std::copy_n(inline_.data(), size_, heap.get());
    heap_ = std::move(heap);
  }
  size_ = size;
}

}  // namespace zerohop
