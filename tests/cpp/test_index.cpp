#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>
#include <vector>

#include "base/index.hpp"
#include "random_layout.hpp"

using namespace zerohop;
using namespace zerohop::testing;

namespace {

const DType kInt16 = DType::parse("int16");
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

Layout select(const Layout& layout, std::vector<Index> indices) {
  return apply_index(layout, indices);
}

Slice random_slice(Generator& generator) {
  Slice slice;
  slice.step = pick(generator, -3, 3);
  if (slice.step == 0) slice.step = 1;
  const bool forward = slice.step > 0;
  slice.start = pick(generator, 0, 3) == 0 ? (forward ? 0 : kMost) : pick(generator, -6, 6);
  slice.stop = pick(generator, 0, 3) == 0 ? (forward ? kMost : kLeast) : pick(generator, -6, 6);
  return slice;
}

// The positions that start:stop:step selects, by testing every candidate.
std::vector<std::int64_t> positions(const Slice& slice, std::int64_t size) {
  const auto resolve = [size](std::int64_t bound) { return bound < 0 ? bound + size : bound; };
  const std::int64_t stop = resolve(slice.stop);
  std::vector<std::int64_t> selected;
  const std::int64_t first = std::clamp<std::int64_t>(resolve(slice.start), slice.step > 0 ? 0 : -1,
                                                      slice.step > 0 ? size : size - 1);
  for (std::int64_t i = first; i >= 0 && i < size; i += slice.step) {
    if (slice.step > 0 ? i >= stop : i <= stop) break;
    selected.push_back(i);
  }
  return selected;
}

}  // namespace

TEST_CASE("slices select the elements that walking through the array selects") {
  Generator generator(2);
  for (int round = 0; round < 5000; ++round) {
    const auto shape = random_shape(generator);
    const Layout layout = random_layout(generator, shape, kInt16);
    std::vector<Index> indices;
    std::vector<std::uint64_t> expected{layout.address};
    std::vector<std::int64_t> expected_shape;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      std::vector<std::int64_t> chosen;
      if (shape[axis] > 0 && pick(generator, 0, 2) == 0) {
        const std::int64_t index = pick(generator, -shape[axis], shape[axis] - 1);
        chosen = {index < 0 ? index + shape[axis] : index};
        indices.emplace_back(index);
      } else {
        const Slice slice = random_slice(generator);
        chosen = positions(slice, shape[axis]);
        indices.emplace_back(slice);
        expected_shape.push_back(static_cast<std::int64_t>(chosen.size()));
      }
      std::vector<std::uint64_t> longer;
      for (std::uint64_t address : expected) {
        for (std::int64_t i : chosen) {
          longer.push_back(address + static_cast<std::uint64_t>(i * layout.strides[axis]));
        }
      }
      expected = std::move(longer);
    }
    const Layout part = apply_index(layout, indices);
    REQUIRE(part.shape == Dims(expected_shape));
    REQUIRE(element_addresses(part) == expected);
    part.validate();
  }
}

TEST_CASE("an ellipsis stands for the dimensions that are not named, newaxis for a new one") {
  const Layout layout = Layout::contiguous(1024, kInt16, std::vector<std::int64_t>{2, 3, 4});
  CHECK(select(layout, {}) == layout);
  CHECK(select(layout, {EllipsisIndex{}}) == layout);
  CHECK(select(layout, {EllipsisIndex{}, std::int64_t{1}}).shape == Dims{2, 3});
  CHECK(select(layout, {EllipsisIndex{}, std::int64_t{1}}).address == 1026);
  CHECK(select(layout, {std::int64_t{1}, EllipsisIndex{}, std::int64_t{0}}).strides == Dims{8});
  CHECK(select(layout, {NewAxis{}, std::int64_t{-1}, NewAxis{}}).shape == Dims{1, 1, 3, 4});
  const std::vector<Index> all{std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, EllipsisIndex{}};
  CHECK(apply_index(layout, all).ndim() == 0);
  CHECK(apply_index(layout, all).address == 1024 + 46);
}

TEST_CASE("wrong indices are refused") {
  const Layout layout = Layout::contiguous(0, kInt16, std::vector<std::int64_t>{2, 3});
  CHECK_THROWS_WITH_AS(select(layout, {std::int64_t{0}, std::int64_t{3}}),
                       doctest::Contains("index 3 is out of bounds for axis 1 with size 3"),
                       std::out_of_range);
  CHECK_THROWS_AS(select(layout, {std::int64_t{-3}}), std::out_of_range);
  CHECK_THROWS_AS(select(layout, {kLeast}), std::out_of_range);
  CHECK_THROWS_WITH_AS(select(layout, {std::int64_t{0}, std::int64_t{0}, std::int64_t{0}}),
                       doctest::Contains("2-dimensional, but 3 were indexed"), std::out_of_range);
  CHECK_THROWS_WITH_AS(select(layout, {EllipsisIndex{}, EllipsisIndex{}}),
                       doctest::Contains("single ellipsis"), std::out_of_range);
  CHECK_THROWS_AS(select(layout, {Slice{0, 1, 0}}), std::invalid_argument);
  const Layout scalar{0, kInt16, {}, {}};
  CHECK_THROWS_AS(select(scalar, {std::int64_t{0}}), std::out_of_range);
}

TEST_CASE("extreme steps and bounds do not overflow") {
  const Layout layout = Layout::contiguous(1024, kInt16, std::vector<std::int64_t>{4});
  CHECK(select(layout, {Slice{0, kMost, kMost}}).shape == Dims{1});
  CHECK(select(layout, {Slice{kMost, kLeast, kLeast}}).shape == Dims{1});
  CHECK(select(layout, {Slice{kMost, kLeast, kLeast}}).address == 1030);
  CHECK(select(layout, {Slice{kLeast, kLeast, 1}}).count() == 0);
}
