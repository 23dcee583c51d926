#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>
#include <vector>

#include "base/reshape.hpp"

using namespace zerohop;

namespace {

using Shape = std::vector<std::int64_t>;

const DType kInt16 = DType::parse("int16");
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Layout array_of(const Shape& shape) { return Layout::contiguous(64, kInt16, shape); }

}  // namespace

TEST_CASE("a contiguous array has every shape of as many elements") {
  const Layout flat = array_of({24});
  CHECK(reshape(flat, Shape{4, 6}) == array_of({4, 6}));
  CHECK(reshape(array_of({4, 6}), Shape{24}) == flat);
  CHECK(reshape(flat, Shape{2, -1, 3}) == array_of({2, 4, 3}));
  CHECK(reshape(flat, Shape{-1}) == flat);
  CHECK(reshape(array_of({1}), Shape{}) == array_of({}));
  CHECK(reshape(array_of({}), Shape{1, 1}) == array_of({1, 1}));
  CHECK(reshape(array_of({0, 3}), Shape{5, 0}) == array_of({5, 0}));
  CHECK(reshape(array_of({0, 3}), Shape{-1, 5}) == array_of({0, 5}));
}

TEST_CASE("other numbers of elements are refused") {
  const Layout array = array_of({4, 6});
  for (const Shape& shape : {Shape{23}, Shape{}, Shape{5, -1}, Shape{-1, -1}, Shape{-2, -12},
                             Shape{0, -1}, Shape{kMost, kMost}, Shape{0}, Shape{kMost, 2, -1}}) {
    CAPTURE(shape_string(shape));
    CHECK_THROWS_WITH_AS(reshape(array, shape), doctest::Contains("which do not make"),
                         std::invalid_argument);
  }
  CHECK_THROWS_AS(reshape(array_of({0}), Shape{-1, 0}), std::invalid_argument);
  CHECK_THROWS_AS(reshape(array_of({1}), Shape(33, 1)), std::invalid_argument);
}

TEST_CASE("an array with gaps is refused") {
  Layout array = array_of({4, 6});
  array.strides[0] *= 2;
  CHECK_THROWS_WITH_AS(reshape(array, Shape{24}), doctest::Contains("gaps"), std::invalid_argument);
}
