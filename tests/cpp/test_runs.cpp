#include <doctest/doctest.h>

#include <map>
#include <stdexcept>
#include <vector>

#include "base/runs.hpp"
#include "random_layout.hpp"

using namespace zerohop;
using namespace zerohop::testing;

namespace {

const DType kFloat64 = DType::parse("float64");

std::vector<Run> all_runs(const Layout& a, const Layout& b) {
  Runs runs(a, b);
  std::vector<Run> list;
  for (Run run; runs.next(run);) list.push_back(run);
  REQUIRE(list.size() == runs.count());
  for (const Run& run : list) REQUIRE(run.nbytes == runs.run_nbytes());
  return list;
}

// The pieces left after joining every pair of neighbours on both sides.
std::size_t longest_pieces(const std::map<std::uint64_t, std::uint64_t>& partners) {
  std::size_t pieces = 0;
  auto before = partners.end();
  for (auto at = partners.begin(); at != partners.end(); before = at++) {
    const bool joined = before != partners.end() && at->first == before->first + 8 &&
                        at->second == before->second + 8;
    if (!joined) ++pieces;
  }
  return pieces;
}

Layout shaped(std::vector<std::int64_t> shape) {
  return Layout::contiguous(1 << 20, kFloat64, shape);
}

}  // namespace

TEST_CASE("runs carry each element to its partner, and no other byte") {
  Generator generator(3);
  for (int round = 0; round < 5000; ++round) {
    const auto shape = random_shape(generator);
    const Layout a = random_layout(generator, shape, kFloat64);
    const bool alike = pick(generator, 0, 1) == 0;
    Layout b = alike ? a : random_layout(generator, shape, kFloat64);
    b.address += 1 << 30;
    std::map<std::uint64_t, std::uint64_t> expected;
    const auto from = element_addresses(a), to = element_addresses(b);
    for (std::size_t i = 0; i < from.size(); ++i) expected[from[i]] = to[i];

    std::map<std::uint64_t, std::uint64_t> carried;
    for (const Run& run : all_runs(a, b)) {
      REQUIRE(run.nbytes % 8 == 0);
      for (std::uint64_t at = 0; at < run.nbytes; at += 8) {
        REQUIRE(carried.emplace(run.a_address + at, run.b_address + at).second);
      }
    }
    REQUIRE(carried == expected);
    // Different layouts may also touch by chance, across dimensions; the code does not look for
    // that.
    if (alike) REQUIRE(Runs(a, b).count() == longest_pieces(expected));
  }
}

TEST_CASE("contiguous arrays are one run whatever their shape") {
  CHECK(all_runs(shaped({4, 5, 6}), shaped({4, 5, 6})).size() == 1);
  CHECK(all_runs(shaped({1, 7, 1}), shaped({1, 7, 1})).front().nbytes == 56);
  CHECK(all_runs(shaped({}), shaped({})).front().nbytes == 8);
}

TEST_CASE("an array without elements has no runs") {
  CHECK(all_runs(shaped({4, 0, 6}), shaped({4, 0, 6})).empty());
  CHECK(Runs(shaped({0}), shaped({0})).count() == 0);
}

TEST_CASE("the side with the shorter contiguous part decides the length of the runs") {
  Layout strided = shaped({4, 6});
  strided.strides = {100 * 8, 8};
  const auto runs = all_runs(shaped({4, 6}), strided);
  CHECK(runs.size() == 4);
  CHECK(runs[1].nbytes == 48);
  Layout columns = shaped({4, 6});
  columns.strides = {100 * 8, 16};
  CHECK(all_runs(columns, strided).size() == 24);
}

TEST_CASE("equal permuted orders and equal reversals merge") {
  Layout fortran = shaped({4, 5, 6});
  fortran.strides = {8, 32, 160};
  CHECK(all_runs(fortran, fortran).size() == 1);
  CHECK(all_runs(fortran, shaped({4, 5, 6})).size() == 120);
  Layout reversed = shaped({5});
  reversed.strides = {-8};
  CHECK(all_runs(reversed, reversed).size() == 1);
  CHECK(all_runs(reversed, reversed).front().a_address == (1 << 20) - 32);
  CHECK(all_runs(reversed, shaped({5})).size() == 5);
}

TEST_CASE("a copy between different shapes or item sizes is refused") {
  CHECK_THROWS_WITH_AS(Runs(shaped({2}), shaped({3})),
                       doctest::Contains("(2,) of float64 and (3,)"), std::invalid_argument);
  Layout narrow = shaped({2});
  narrow.dtype = DType::parse("float32");
  CHECK_THROWS_AS(Runs(shaped({2}), narrow), std::invalid_argument);
}
