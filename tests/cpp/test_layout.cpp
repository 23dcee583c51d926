#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>
#include <utility>

#include "base/layout.hpp"
#include "random_layout.hpp"

using namespace zerohop;
using namespace zerohop::testing;

namespace {

const DType kFloat32 = DType::parse("float32");
constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

}  // namespace

TEST_CASE("a contiguous layout has the strides of C order") {
  const std::int64_t shape[] = {2, 3, 4};
  const Layout layout = Layout::contiguous(4096, kFloat32, shape);
  CHECK(layout.strides == Dims{48, 16, 4});
  CHECK(layout.nbytes() == 96);
  CHECK(layout.is_contiguous());
  CHECK(layout.extent().begin == 4096);
  CHECK(layout.extent().end == 4096 + 96);
}

TEST_CASE("a layout of no dimension is one element") {
  const Layout layout{64, kFloat32, {}, {}};
  layout.validate();
  CHECK(layout.nbytes() == 4);
  CHECK(layout.is_contiguous());
  CHECK(layout.extent().end == 68);
}

TEST_CASE("extent, count and contiguity agree with the addresses of all elements") {
  Generator generator(1);
  for (int round = 0; round < 3000; ++round) {
    const Layout layout = random_layout(generator, random_shape(generator), kFloat32);
    layout.validate();
    const auto addresses = element_addresses(layout);
    REQUIRE(layout.count() == addresses.size());
    REQUIRE(layout.nbytes() == 4 * addresses.size());
    if (addresses.empty()) {
      REQUIRE(layout.extent().begin == layout.extent().end);
      REQUIRE(layout.is_contiguous());
      continue;
    }
    const auto [lowest, highest] = std::minmax_element(addresses.begin(), addresses.end());
    REQUIRE(layout.extent().begin == *lowest);
    REQUIRE(layout.extent().end == *highest + 4);
    bool dense = true;
    for (std::size_t i = 0; i < addresses.size(); ++i)
      dense &= addresses[i] == addresses[0] + 4 * i;
    REQUIRE(layout.is_contiguous() == dense);
  }
}

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

TEST_CASE("strides of an empty array do not matter") {
  Layout layout{8, kFloat32, {5, 0}, {kHuge, -kHuge}};
  layout.validate();
  CHECK(layout.nbytes() == 0);
  CHECK(layout.extent().begin == layout.extent().end);
}

TEST_CASE("shape and dtype are compared with both sides named") {
  const Layout a{0, kFloat32, {2, 3}, {12, 4}};
  Layout b{0, kFloat32, {3}, {4}};
  CHECK_THROWS_WITH_AS(check_same_shape(a, b), doctest::Contains("(2, 3) and the destination (3,)"),
                       std::invalid_argument);
  b = a;
  b.dtype = DType::parse("int32");
  CHECK_THROWS_WITH_AS(check_same_shape(a, b),
                       doctest::Contains("float32 and the destination int32"),
                       std::invalid_argument);
  CHECK_NOTHROW(check_same_shape(a, a));
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
