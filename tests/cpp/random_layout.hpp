// Random array layouts for property tests, and the brute-force meaning of a layout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "base/layout.hpp"

namespace zerohop::testing {

using Generator = std::mt19937;

inline std::int64_t pick(Generator& generator, std::int64_t lowest, std::int64_t highest) {
  return std::uniform_int_distribution<std::int64_t>(lowest, highest)(generator);
}

// The address of every element, in C order of the indices.
inline std::vector<std::uint64_t> element_addresses(const Layout& layout) {
  std::vector<std::uint64_t> addresses{layout.address};
  for (std::size_t axis = 0; axis < layout.ndim(); ++axis) {
    std::vector<std::uint64_t> longer;
    for (std::uint64_t address : addresses) {
      for (std::int64_t i = 0; i < layout.shape[axis]; ++i) {
        longer.push_back(address + static_cast<std::uint64_t>(i * layout.strides[axis]));
      }
    }
    addresses = std::move(longer);
  }
  return addresses;
}

inline std::vector<std::int64_t> random_shape(Generator& generator) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(pick(generator, 0, 5)));
  for (std::int64_t& size : shape) size = pick(generator, 0, 9) == 0 ? 0 : pick(generator, 1, 4);
  return shape;
}

// Elements that do not overlap: dimensions in random memory order, some with gaps, some reversed.
inline Layout random_layout(Generator& generator, const std::vector<std::int64_t>& shape,
                            DType dtype) {
  Layout layout{std::uint64_t{1} << 40, dtype, Dims(shape), Dims::zeros(shape.size())};
  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  if (pick(generator, 0, 1) == 0) std::shuffle(order.begin(), order.end(), generator);
  std::int64_t stride = dtype.itemsize();
  for (std::size_t i = order.size(); i-- > 0;) {
    const std::size_t axis = order[i];
    if (pick(generator, 0, 3) == 0) stride *= pick(generator, 2, 3);
    layout.strides[axis] = pick(generator, 0, 4) == 0 ? -stride : stride;
    stride *= std::max<std::int64_t>(shape[axis], 1);
  }
  return layout;
}

}  // namespace zerohop::testing
