// What NumPy is the model for: tests/contract/test_values.py, test_shapes.py.
#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "base/layout.hpp"

using namespace zerohop;

namespace {

const DType kFloat32 = DType::parse("float32");
constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

}  // namespace

TEST_CASE("a layout that cannot exist is refused") {
  const auto refused = [](Layout layout, const char* words) {
    CHECK_THROWS_WITH_AS(layout.validate(), doctest::Contains(words), std::invalid_argument);
  };
  refused({0, kFloat32, {2}, {}}, "differ in length");
  refused({0, kFloat32, {-1}, {4}}, "negative dimension");
  refused({0, DType{17, 4, 2}, {1}, {1}}, "not supported");
  refused({0, kFloat32, {kHuge, 2}, {4, 4}}, "larger than the address space");
  refused({0, kFloat32, {0, kHuge, kHuge}, {4, 4, 4}}, "larger than the address space");
  refused({8, kFloat32, {4}, {-4}}, "leaves the address space");
  refused({~std::uint64_t{0} - 8, kFloat32, {4}, {4}}, "leaves the address space");
  refused({8, kFloat32, {2, 2}, {kHuge, kHuge}}, "leaves the address space");
}

TEST_CASE("dimension lists copy and move beyond their inline room and stop at the limit") {
  Dims dims;
  for (std::int64_t i = 0; i < 12; ++i) dims.push_back(i);
  Dims copy = dims;
  copy[11] = 99;
  CHECK(dims[11] == 11);
  Dims moved = std::move(copy);
  CHECK(moved.size() == 12);
  CHECK(moved[11] == 99);
  moved = Dims{1, 2};
  CHECK(moved == Dims{1, 2});
  moved = dims;
  CHECK(moved == dims);
  CHECK_THROWS_WITH_AS(Dims::zeros(33), doctest::Contains("33 dimensions"), std::invalid_argument);
}

TEST_CASE("extreme steps and bounds of an index do not overflow") {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  const Layout layout =
      Layout::contiguous(1024, DType::parse("int16"), std::vector<std::int64_t>{4});
  const auto select = [&](Slice slice) { return apply_index(layout, std::vector<Index>{slice}); };
  CHECK(select({0, kHuge, kHuge}).shape == Dims{1});
  CHECK(select({kHuge, kLeast, kLeast}).shape == Dims{1});
  CHECK(select({kHuge, kLeast, kLeast}).address == 1030);
  CHECK(select({kLeast, kLeast, 1}).count() == 0);
}
