#include <doctest/doctest.h>

#include <stdexcept>
#include <vector>

#include "base/view.hpp"

using namespace zerohop;

namespace {

using Shape = std::vector<std::int64_t>;

Layout array_of(const char* dtype, const Shape& shape, std::uint64_t address = 64) {
  return Layout::contiguous(address, DType::parse(dtype), shape);
}

void check_refused(const Layout& layout, const char* dtype, const char* why) {
  CHECK_THROWS_WITH_AS(view(layout, DType::parse(dtype)), doctest::Contains(why),
                       std::invalid_argument);
}

}  // namespace

TEST_CASE("the last axis takes another item size up") {
  const DType floats = DType::parse("float32");
  CHECK(view(array_of("uint8", {24}), floats) == array_of("float32", {6}));
  CHECK(view(array_of("uint8", {3, 8}), floats) == array_of("float32", {3, 2}));
  CHECK(view(array_of("complex128", {5}), floats) == array_of("float32", {20}));
  CHECK(view(array_of("int16", {2, 3, 2}), floats) == array_of("float32", {2, 3, 1}));
  CHECK(view(array_of("float64", {2, 1}), floats) == array_of("float32", {2, 2}));
  CHECK(view(array_of("float32", {}), DType::parse("int32")) == array_of("int32", {}));
}

TEST_CASE("there and back is the same") {
  const Layout array = array_of("float64", {4, 6});
  for (const char* dtype : {"bool", "float16", "float32", "int64", "complex64", "complex128"}) {
    CAPTURE(dtype);
    CHECK(view(view(array, DType::parse(dtype)), array.dtype) == array);
  }
}

TEST_CASE("rows may lie apart and backwards, elements may not") {
  Layout array = array_of("float32", {4, 6});
  array.strides[0] = -32;
  const Layout words = view(array, DType::parse("float64"));
  CHECK(words.shape == Dims({4, 3}));
  CHECK(words.strides == Dims({-32, 8}));
  CHECK(words.nbytes() == array.nbytes());
  array.strides[1] = 8;
  CHECK(view(array, DType::parse("int32")).strides == array.strides);
  check_refused(array, "float64", "its last axis has gaps, the strides are (-32, 8)");
  check_refused(array, "uint8", "view before slicing, or copy it");
  array.shape[1] = 1;  // whose stride is never used
  CHECK(view(array, DType::parse("uint8")).strides == Dims({-32, 1}));
}

TEST_CASE("what does not come out even is refused") {
  check_refused(
      array_of("uint8", {2, 6}), "float32",
      "an array of shape (2, 6) of uint8 is not viewed as float32: the 6 bytes of its last "
      "axis are not a whole number of float32 (4 bytes each); give it another size");
  check_refused(array_of("float16", {}), "int8", "no axis to scale; reshape(1) it first");
  check_refused(array_of("uint8", {8}, 66), "float32", "its address 66 is not a multiple of 4");
  check_refused(array_of("uint8", {0, 3}), "float16", "not a whole number");
  Layout rows = array_of("float32", {4, 2});
  rows.strides[0] = 12;
  check_refused(rows, "float64", "its strides (12, 4) are not multiples of 8");
  rows.shape[0] = 1;
  CHECK(view(rows, DType::parse("float64")).shape == Dims({1, 1}));
}

TEST_CASE("smaller elements are aligned as the larger ones were, and none need not be") {
  CHECK(view(array_of("float32", {2}, 66), DType::parse("uint8")).shape == Dims({8}));
  CHECK(view(array_of("uint8", {0}, 3), DType::parse("float64")).shape == Dims({0}));
  CHECK(view(array_of("uint8", {0, 16}, 3), DType::parse("complex128")).shape == Dims({0, 1}));
}
